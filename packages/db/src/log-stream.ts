import { createHash } from 'node:crypto';
import type { Redis } from 'ioredis';
import type { EncodedBlock } from '@logpond/log-block/encode';
import { decodeSeq, encodeSeq } from '@logpond/log-block/entry-id';
import { mapRedisError } from './connect.ts';
import type { RedisStore } from './connect.ts';
import { RedisScript } from './redis-script.ts';
import { shardCountKey, shardKeys, shardOf } from './shard-map.ts';
import type { ShardKeys } from './shard-map.ts';
import { StoreError } from './store-error.ts';

const admitScript = new RedisScript('log-stream.lua/admit.lua');
const prepareScript = new RedisScript('log-stream.lua/prepare.lua');

/** How long a receipt is remembered under its Idempotency-Key. */
const IDEMPOTENCY_TTL_MS = 3_600_000;
/** Share of the budget that a shard's stream may fill before nothing more is admitted. */
const ADMIT_SHARE = 0.8;

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

export type Admission =
  | { kind: 'stored'; firstOffset: number }
  | { kind: 'replayed'; receipt: string }
  | { kind: 'mismatch' }
  | { kind: 'full' };

/**
 * The entrance of the pipeline: blocks are put on a shard's stream and are on disk when `admit` returns.
 */
export class LogStream {
  readonly shards: number;
  readonly #redis: RedisStore;
  readonly #writer: Redis;
  readonly #limitBytes: number;

  private constructor(redis: RedisStore, writer: Redis) {
    this.#redis = redis;
    this.#writer = writer;
    this.shards = redis.shards;
    this.#limitBytes = Math.floor((redis.budgetBytes / redis.shards) * ADMIT_SHARE);
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
   * Appends one block to the shard's stream, synced to disk before this returns.
   *
   * With `idempotency`, the same key and body give the first receipt back and store nothing.
   *
   * @throws {StoreError} `unavailable`: not confirmed. The block may be stored or not; the client sends again.
   */
  async admit(shard: number, encoded: EncodedBlock, idempotency?: Idempotency): Promise<Admission> {
    const keys = shardKeys(this.#redis.prefix, shard);
    const projects = [...new Set(encoded.runs.map((run) => run.projectId))];
    const scriptKeys = [keys.log, keys.state, keys.tailed];
    const args: (string | number | Buffer)[] = [
      encoded.rows,
      encoded.block,
      encoded.digest,
      this.#limitBytes,
      keys.tailChannel,
      projects.length,
      ...projects,
    ];
    if (idempotency !== undefined) {
      scriptKeys.push(idempotencyKey(keys, idempotency));
      args.push(idempotency.bodyHash, idempotency.receipt, IDEMPOTENCY_TTL_MS);
    }
    return readAdmission(await admitScript.run(this.#writer, scriptKeys, args));
  }

  /**
   * What is remembered under a key, for a body that would be refused now: what was accepted once stays accepted.
   * Undefined when there is nothing.
   *
   * @throws {StoreError} `unavailable`.
   */
  async recall(shard: number, idempotency: Omit<Idempotency, 'receipt'>): Promise<Admission | undefined> {
    const key = idempotencyKey(shardKeys(this.#redis.prefix, shard), idempotency);
    try {
      const [body, receipt] = await this.#writer.hmget(key, 'body', 'receipt');
      if (typeof body !== 'string') return undefined;
      return body === idempotency.bodyHash
        ? { kind: 'replayed', receipt: receipt ?? '' }
        : { kind: 'mismatch' };
    } catch (error) {
      throw mapRedisError(error);
    }
  }
}

function idempotencyKey(keys: ShardKeys, { projectId, key }: Pick<Idempotency, 'projectId' | 'key'>): string {
  return keys.idempotency(projectId, createHash('sha256').update(key).digest('hex').slice(0, 32));
}

function readAdmission(answer: unknown): Admission {
  const [kind = '', value] = Array.isArray(answer) ? answer.map(String) : [];
  switch (kind) {
    case 'stored':
      return { kind, firstOffset: Number(value) };
    case 'replayed':
      return { kind, receipt: value ?? '' };
    case 'mismatch':
    case 'full':
      return { kind };
    case 'unprepared':
      throw new StoreError(
        'redis',
        'unavailable',
        'the streams are not prepared yet; an ingest worker does it',
      );
    default:
      throw new TypeError(`expected an answer of admit.lua, got ${JSON.stringify(answer)}`);
  }
}

/**
 * Gives every shard that has none its epoch: one above what ClickHouse holds, so that no identity of an
 * entry ever repeats, even after Redis was lost.
 *
 * @param maxSeqs the greatest seq stored of each shard, read before this call.
 * @throws {Error} when a shard is older than what ClickHouse holds of it (a Redis that was restored from a
 *   copy): its next offsets were given out before, and what they name now would be taken for stored.
 */
export async function prepareShards(redis: RedisStore, maxSeqs: ReadonlyMap<number, bigint>): Promise<void> {
  await ask(redis.client.setnx(shardCountKey(redis.prefix), redis.shards));
  for (let shard = 0; shard < redis.shards; shard += 1) {
    const stored = decodeSeq(maxSeqs.get(shard) ?? 0n);
    const { state } = shardKeys(redis.prefix, shard);
    const [epoch, next] = await ask(redis.client.hmget(state, 'epoch', 'next'));
    if (typeof epoch !== 'string') {
      await prepareScript.run(redis.client, [state], [stored.epoch + 1]);
    } else if (encodeSeq(Number(epoch), Number(next)) <= (maxSeqs.get(shard) ?? 0n)) {
      throw new Error(
        `shard ${shard}: this Redis is older than ClickHouse; expected its next entry above ${stored.offset} of epoch ` +
          `${stored.epoch}, got ${next} of epoch ${epoch}. Entries it takes now wait; bring back its newest copy`,
      );
    }
  }
}

async function ask<T>(answer: Promise<T>): Promise<T> {
  try {
    return await answer;
  } catch (error) {
    throw mapRedisError(error);
  }
}
