import type { deadLetterSchema } from '@logpond/schema/dead-letter';
import type { z } from 'zod';
import { askRedis } from './connect.ts';
import type { RedisStore } from './connect.ts';
import { writeRanges } from './offset-range.ts';
import type { OffsetRange } from './offset-range.ts';
import { RedisScript } from './redis-script.ts';
import { shardKeys, shardOf } from './shard-map.ts';
import type { ShardKeys } from './shard-map.ts';

const buryScript = new RedisScript('dead-letters.lua/bury.lua');
const changeScript = new RedisScript('dead-letters.lua/change.lua');

/** Part of a shard's share of the budget that its dead letters may take, beside the stream. */
const BUDGET_SHARE = 0.05;
const LIMIT_BYTES_MIN = 1024 * 1024;
const DETAIL_LENGTH_MAX = 1_000;
/** Letters of blocks whose projects cannot be told; only operators see them (docs/operations.md). */
const NO_PROJECT = '-';

export type DeadLetter = z.infer<typeof deadLetterSchema>;
export type DeadReason = DeadLetter['reason'];

/** What is buried; see `DeadLetters.bury`. */
export type DeadLetterBurial = {
  /** 1-100 letters, digits, hyphens and underscores; the same for the same entries, so that it can be repeated. */
  id: string;
  /** Null: a damaged block of unknown projects, for operators only. */
  projectId: string | null;
  reason: DeadReason;
  detail: string;
  entries: number;
  firstOffset: number;
  createdAtMs: number;
  /** NDJSON of the entries as POST /ingest takes them; of a block that cannot be read its raw bytes. */
  payload: Buffer;
  isReadable: boolean;
  /** Offsets of the open plan that need no other letter once this one is kept. */
  covers?: readonly OffsetRange[];
};

type StoredLetter = Omit<DeadLetterBurial, 'payload' | 'projectId' | 'covers'> & { bytes: number };

/** A letter and its payload; without `isReadable` the payload is a raw block, which may hold other projects' entries. */
export type DeadLetterContent = { letter: DeadLetter; payload: Buffer; isReadable: boolean };

/**
 * What was acknowledged and cannot be stored: kept beside the stream, listed, downloaded, replayed and deleted by
 * its project, never dropped silently.
 */
export class DeadLetters {
  readonly #redis: RedisStore;
  readonly #limitBytes: number;

  constructor(redis: RedisStore) {
    this.#redis = redis;
    this.#limitBytes = Math.max(
      LIMIT_BYTES_MIN,
      Math.floor((redis.budgetBytes / redis.shards) * BUDGET_SHARE),
    );
  }

  /**
   * Keeps a letter, on disk (and on `REDIS_WAIT_REPLICAS` replicas) before this returns. Safe to repeat: a letter
   * whose id is there already stays as it is, and one that was kept since the open plan was written down does not come
   * back although it was replayed or deleted.
   *
   * @param fence of the worker that owns the shard.
   * @returns `full`: the letters of this shard take all they may (5 % of its share of the budget, at least 1 MB; a
   *   single one may take more), and nothing was kept. `replaced`: another worker owns the shard now, and nothing was
   *   kept.
   * @throws {StoreError} `unavailable`: not confirmed, bury it again.
   */
  async bury(
    shard: number,
    fence: string,
    burial: DeadLetterBurial,
  ): Promise<'buried' | 'full' | 'replaced'> {
    const { projectId, payload, covers = [], ...rest } = burial;
    const stored: StoredLetter = {
      ...rest,
      detail: rest.detail.slice(0, DETAIL_LENGTH_MAX),
      bytes: payload.length,
    };
    const args = [fence, stored.id, JSON.stringify(stored), payload, placeOf(stored)];
    const record = `${projectId ?? NO_PROJECT}:${stored.id}`;
    return this.#bury(shard, projectId, [...args, this.#limitBytes, record, writeRanges(covers)]);
  }

  /**
   * Records beside the open plan that these offsets are done with: their letters are kept, or they are stored. The
   * next owner of the shard finds them in `Ownership.buried`.
   *
   * @param name of the record, the same when it is repeated.
   * @throws {StoreError} `unavailable`: not confirmed, record it again.
   */
  async recordBuried(
    shard: number,
    fence: string,
    name: string,
    covers: readonly OffsetRange[],
  ): Promise<'buried' | 'full' | 'replaced'> {
    return this.#bury(shard, null, [fence, '', '', '', '', 0, name, writeRanges(covers)]);
  }

  async #bury(
    shard: number,
    projectId: string | null,
    args: (string | number | Buffer)[],
  ): Promise<'buried' | 'full' | 'replaced'> {
    const keys = shardKeys(this.#redis.prefix, shard);
    const answer = await this.#write(buryScript, keys, projectId ?? NO_PROJECT, args);
    if (answer === 'buried' || answer === 'full' || answer === 'replaced') return answer;
    throw new TypeError(`expected an answer of bury.lua, got ${JSON.stringify(answer)}`);
  }

  /**
   * A page of a project's letters, newest first.
   *
   * @param options `limit`: 1 or more. `cursor`: `nextCursor` of the page before; letters that come and go meanwhile
   *   neither move nor repeat the others.
   * @throws {StoreError} `unavailable`.
   */
  async list(
    projectId: string,
    { limit, cursor }: { limit: number; cursor?: string | undefined },
  ): Promise<{ deadLetters: DeadLetter[]; nextCursor: string | null }> {
    const { order, letters } = this.#keysOf(projectId).dead(projectId);
    const { client } = this.#redis;
    const from = cursor === undefined ? '+' : `(${cursor}`;
    const places = await askRedis(client.zrange(order, from, '-', 'BYLEX', 'REV', 'LIMIT', 0, limit + 1));
    const page = places.slice(0, limit);
    const texts = page.length === 0 ? [] : await askRedis(client.hmget(letters, ...page.map(idOfPlace)));
    const deadLetters = texts.flatMap((text) =>
      text === null ? [] : [viewLetter(projectId, parseLetter(text))],
    );
    return { deadLetters, nextCursor: places.length > limit ? (page.at(-1) ?? null) : null };
  }

  /** One letter with its payload; undefined when the project has none of this id. @throws {StoreError} `unavailable`. */
  async read(projectId: string, id: string): Promise<DeadLetterContent | undefined> {
    const { letters, payloads } = this.#keysOf(projectId).dead(projectId);
    const { client } = this.#redis;
    const [text, payload] = await askRedis(
      Promise.all([client.hget(letters, id), client.hgetBuffer(payloads, id)]),
    );
    if (text === null || payload === null) return undefined;
    const stored = parseLetter(text);
    return { letter: viewLetter(projectId, stored), payload, isReadable: stored.isReadable };
  }

  /** Deletes a letter for good. False: there is none of this id. @throws {StoreError} `unavailable`. */
  async remove(projectId: string, id: string): Promise<boolean> {
    const text = await this.#readText(projectId, id);
    if (text === undefined) return false;
    const args = [id, placeOf(parseLetter(text)), text];
    return (await this.#write(changeScript, this.#keysOf(projectId), projectId, args)) === 1;
  }

  /**
   * Leaves of a letter only these entries, when it still is as `read` gave it.
   *
   * @returns false when it has changed or is gone meanwhile; then it stays as it is.
   * @throws {StoreError} `unavailable`.
   */
  async keepOnly(letter: DeadLetter, rest: { entries: number; payload: Buffer }): Promise<boolean> {
    const { projectId, id } = letter;
    const text = await this.#readText(projectId, id);
    if (text === undefined) return false;
    const stored = parseLetter(text);
    if (stored.entries !== letter.entries || stored.bytes !== letter.bytes) return false;
    const next: StoredLetter = { ...stored, entries: rest.entries, bytes: rest.payload.length };
    const args = [id, placeOf(stored), text, JSON.stringify(next), rest.payload];
    return (await this.#write(changeScript, this.#keysOf(projectId), projectId, args)) === 1;
  }

  async #readText(projectId: string, id: string): Promise<string | undefined> {
    const { letters } = this.#keysOf(projectId).dead(projectId);
    return (await askRedis(this.#redis.client.hget(letters, id))) ?? undefined;
  }

  #keysOf(projectId: string): ShardKeys {
    return shardKeys(this.#redis.prefix, shardOf(projectId, this.#redis.shards));
  }

  async #write(
    script: RedisScript,
    keys: ShardKeys,
    projectId: string,
    args: (string | number | Buffer)[],
  ): Promise<unknown> {
    const { order, letters, payloads } = keys.dead(projectId);
    const { client, waitReplicas } = this.#redis;
    return script.runReplicated(client, [keys.state, order, letters, payloads], args, waitReplicas);
  }
}

/** Where a letter stands among its project's: by time, then id. */
function placeOf({ createdAtMs, id }: Pick<StoredLetter, 'createdAtMs' | 'id'>): string {
  return `${String(Math.trunc(createdAtMs)).padStart(15, '0')}.${id}`;
}

function idOfPlace(place: string): string {
  return place.slice(place.indexOf('.') + 1);
}

function parseLetter(text: string): StoredLetter {
  return JSON.parse(text) as StoredLetter;
}

function viewLetter(projectId: string, stored: StoredLetter): DeadLetter {
  const { id, reason, detail, entries, bytes, createdAtMs } = stored;
  return { id, projectId, reason, detail, entries, bytes, createdAt: new Date(createdAtMs).toISOString() };
}
