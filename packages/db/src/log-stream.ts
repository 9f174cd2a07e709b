import { createHash } from 'node:crypto';
import { apportionBlock } from '@logpond/log-block/apportion';
import type { EncodedBlock } from '@logpond/log-block/encode';
import type { RedisClient, RedisStore } from './connect.ts';
import { RedisScript } from './redis-script.ts';
import { shardKeys, shardOf } from './shard-map.ts';
import type { ShardKeys } from './shard-map.ts';
import { StoreError } from './store-error.ts';

const admitScript = new RedisScript('log-stream.lua/admit.lua');
const recallScript = new RedisScript('log-stream.lua/recall.lua');
const backlogScript = new RedisScript('log-stream.lua/backlog.lua');

/** How long a receipt is remembered under its Idempotency-Key. */
const IDEMPOTENCY_TTL_MS = 3_600_000;

/** A request that must be stored once however often it is sent. */
export type Idempotency = {
  projectId: string;
  /** As the client sent it, 1-255 characters. */
  key: string;
  /** SHA-256 of the inflated body, hex. */
  bodyHash: string;
  /** The answer to give now and to every repetition, as JSON text. */
  receipt: string;
};

/**
 * `stored`: `crowded` holds the projects of this block that are above their fair share of the shard's budget, with
 * the seconds (1-300) until what waits of them is stored; `isPressed` says that the stream is above 55 % of it.
 * `full`: it is above 80 %; room is expected after `retryAfterS`.
 */
export type Admission =
  | { kind: 'stored'; firstOffset: number; crowded: ReadonlyMap<string, number>; isPressed: boolean }
  | { kind: 'replayed'; receipt: string }
  | { kind: 'mismatch' }
  | { kind: 'full'; retryAfterS: number };

/** What of one project is acknowledged and not yet stored; `seconds` since the oldest waiting block of its shard. */
export type Backlog = { entries: number; bytes: number; seconds: number };

/**
 * The entrance of the pipeline: blocks are put on a shard's stream and are on disk when `admit` returns.
 */
export class LogStream {
  readonly shards: number;
  readonly #redis: RedisStore;
  readonly #writer: RedisClient;
  readonly #budgetBytes: number;

  private constructor(redis: RedisStore, writer: RedisClient) {
    this.#redis = redis;
    this.#writer = writer;
    this.shards = redis.shards;
    this.#budgetBytes = Math.floor(redis.budgetBytes / redis.shards);
  }

  /**
   * Opens a connection of its own for the blocks.
   *
   * @throws {StoreError} `unavailable`.
   * @throws {Error} when the streams were begun with another number of shards.
   */
  static async open(redis: RedisStore): Promise<LogStream> {
    return new LogStream(redis, await redis.writer());
  }

  /** The shard that a project's entries go to. */
  shardOf(projectId: string): number {
    return shardOf(projectId, this.shards);
  }

  /**
   * Appends one block to the shard's stream, synced to disk (and held by `REDIS_WAIT_REPLICAS` replicas) before
   * this returns.
   *
   * With `idempotency`, the same key and body give the first receipt back and store nothing.
   *
   * @throws {StoreError} `unavailable`: not confirmed. The block may be stored or not; the client sends again.
   */
  async admit(shard: number, encoded: EncodedBlock, idempotency?: Idempotency): Promise<Admission> {
    const keys = shardKeys(this.#redis.prefix, shard);
    const shares = apportionBlock(encoded.runs, encoded.block.length + encoded.digest.length);
    const scriptKeys = [keys.log, keys.state, keys.tailed, keys.backlog];
    const args: (string | number | Buffer)[] = [
      encoded.rows,
      encoded.block,
      encoded.digest,
      this.#budgetBytes,
      keys.tailChannel,
      shares.length,
      ...shares.flatMap(({ projectId, bytes, rows }) => [projectId, bytes, rows]),
    ];
    if (idempotency !== undefined) {
      scriptKeys.push(idempotencyKey(keys, idempotency));
      args.push(idempotency.bodyHash, idempotency.receipt, IDEMPOTENCY_TTL_MS);
    }
    return readAdmission(await this.#write(admitScript, scriptKeys, args));
  }

  async #write(script: RedisScript, keys: string[], args: (string | number | Buffer)[]): Promise<unknown> {
    return script.runReplicated(this.#writer, keys, args, this.#redis.waitReplicas);
  }

  /**
   * What is remembered under a key, for a body that would be refused now: what was accepted once stays accepted.
   * Undefined when there is nothing.
   *
   * @throws {StoreError} `unavailable`.
   */
  async recall(shard: number, idempotency: Omit<Idempotency, 'receipt'>): Promise<Admission | undefined> {
    const key = idempotencyKey(shardKeys(this.#redis.prefix, shard), idempotency);
    const answer = await this.#write(recallScript, [key], [idempotency.bodyHash]);
    return answer === null ? undefined : readAdmission(answer);
  }

  /** What waits of a project; all zero when nothing does. @throws {StoreError} `unavailable`. */
  async readBacklog(projectId: string): Promise<Backlog> {
    const keys = shardKeys(this.#redis.prefix, this.shardOf(projectId));
    const answer = await backlogScript.run(
      this.#redis.client,
      [keys.backlog, keys.log, keys.state],
      [projectId],
    );
    const [bytes = 0, entries = 0, ageMs = 0] = Array.isArray(answer) ? answer.map(Number) : [];
    return { bytes, entries, seconds: Math.ceil(ageMs / 1_000) };
  }
}

function idempotencyKey(keys: ShardKeys, { projectId, key }: Pick<Idempotency, 'projectId' | 'key'>): string {
  return keys.idempotency(projectId, createHash('sha256').update(key).digest('hex').slice(0, 32));
}

function readAdmission(answer: unknown): Admission {
  const [kind = '', value, ...rest] = Array.isArray(answer) ? answer.map(String) : [];
  switch (kind) {
    case 'stored':
      return {
        kind,
        firstOffset: Number(value),
        isPressed: rest[0] === '1',
        crowded: readCrowded(rest.slice(1)),
      };
    case 'replayed':
      return { kind, receipt: value ?? '' };
    case 'mismatch':
      return { kind };
    case 'full':
      return { kind, retryAfterS: Number(value) };
    case 'unprepared':
      throw new StoreError(
        'redis',
        'unavailable',
        'the streams were not compared with ClickHouse since Redis started; an ingest worker does it',
      );
    default:
      throw new TypeError(`expected an answer of admit.lua, got ${JSON.stringify(answer)}`);
  }
}

/** Ids and seconds in turn. */
function readCrowded(pairs: readonly string[]): ReadonlyMap<string, number> {
  const crowded = new Map<string, number>();
  for (let at = 0; at + 1 < pairs.length; at += 2) crowded.set(pairs[at] ?? '', Number(pairs[at + 1]));
  return crowded;
}
