import type { Redis } from 'ioredis';
import type { RedisStore } from './connect.ts';
import { mapRedisError } from './connect.ts';
import { readBlockHeader } from '@logpond/log-block/decode';
import { RedisScript } from './redis-script.ts';
import { CONSUMERS, shardKeys } from './shard-map.ts';
import type { Consumer, ShardKeys } from './shard-map.ts';

const planScript = new RedisScript('log-stream.lua/plan.lua');
const commitScript = new RedisScript('log-stream.lua/commit.lua');
const advanceScript = new RedisScript('log-stream.lua/advance.lua');
const trimScript = new RedisScript('log-stream.lua/trim.lua');

/** Blocks fetched by one XRANGE. A block is at most a few megabytes, so an answer stays below the read limit. */
const READ_BLOCKS = 16;
const REPLAY_WINDOW_MS = 15 * 60_000;
const REPLAY_WINDOW_PRESSED_MS = 2 * 60_000;
/** Shares of a shard's budget above which the replay window shrinks, and above which there is none. */
const PRESSURE_SHARE = 0.4;
const NO_WINDOW_SHARE = 0.6;

/** One block as it lies in the stream. */
export type StreamBlock = {
  /** Offset of its first entry. */
  firstOffset: number;
  rows: number;
  /** What the block's columns take when they are inflated. */
  rawBytes: number;
  block: Buffer;
  digest: Buffer;
};

/** Entries `[from, to)` of a shard, whole blocks; `bytes` as they lie in the stream, `rawBytes` inflated. */
export type StreamRange = {
  from: number;
  to: number;
  rows: number;
  bytes: number;
  rawBytes: number;
  blocks: StreamBlock[];
};

/** Reading stops with the block that reaches one of them. */
export type ReadLimits = { rowsMax: number; bytesMax: number; rawBytesMax: number };

/** Whether a range has reached one of the limits. */
export function isAtLimit(range: StreamRange, limits: ReadLimits): boolean {
  return (
    range.rows >= limits.rowsMax || range.bytes >= limits.bytesMax || range.rawBytes >= limits.rawBytesMax
  );
}

/** What a lease gives: who owns which shard, and where it goes on. */
export type Ownership = {
  shard: number;
  fence: string;
  epoch: number;
  done: number;
  plan: string | undefined;
};

/**
 * A consumer's place in one shard's stream, held under a lease.
 *
 * The states are `idle` (no plan: everything below `done` is stored) and `planned` (a range is written down
 * and may be stored in part). `writePlan` goes from the first to the second, `commit` back. Both are refused
 * for an owner whose fence is not the newest, so a paused or forgotten worker changes nothing.
 */
export class LogCursor implements Disposable {
  readonly shard: number;
  readonly epoch: number;
  readonly #redis: RedisStore;
  readonly #consumer: Consumer;
  readonly #keys: ShardKeys;
  readonly #fence: string;
  readonly #reader: Redis;

  private constructor(redis: RedisStore, consumer: Consumer, ownership: Ownership, reader: Redis) {
    this.shard = ownership.shard;
    this.epoch = ownership.epoch;
    this.#redis = redis;
    this.#consumer = consumer;
    this.#fence = ownership.fence;
    this.#keys = shardKeys(redis.prefix, ownership.shard);
    this.#reader = reader;
  }

  /** Opens a connection of its own for reading. @throws {StoreError} `unavailable`. */
  static async open(redis: RedisStore, consumer: Consumer, ownership: Ownership): Promise<LogCursor> {
    return new LogCursor(redis, consumer, ownership, await redis.blocking());
  }

  /** Waits until there is a block at or above `from`, at most `timeoutMs`. */
  async waitForBlock(from: number, timeoutMs: number): Promise<boolean> {
    const after = `${from - 1}-18446744073709551615`;
    try {
      const answer = await this.#reader.xreadBuffer(
        'COUNT',
        1,
        'BLOCK',
        timeoutMs,
        'STREAMS',
        this.#keys.log,
        after,
      );
      return answer !== null;
    } catch (error) {
      throw mapRedisError(error);
    }
  }

  /**
   * Reads blocks from `from` on until one of the limits is reached or the stream ends.
   *
   * @throws {Error} when the stream does not hold `from` any more although it holds later entries.
   */
  async read(from: number, limits: ReadLimits): Promise<StreamRange> {
    return this.#collect(from, (range) => !isAtLimit(range, limits), '+');
  }

  /** Reads exactly `[from, to)`: the range of a plan that was written down before. */
  async readPlanned(from: number, to: number): Promise<StreamRange> {
    const range = await this.#collect(from, (read) => read.to < to, `(${to}-0`);
    if (range.to !== to)
      throw new Error(
        `shard ${this.shard}: the plan covers ${from}-${to}, the stream gave ${range.from}-${range.to}`,
      );
    return range;
  }

  async #collect(
    from: number,
    wantsMore: (range: StreamRange) => boolean,
    end: string,
  ): Promise<StreamRange> {
    const range: StreamRange = { from, to: from, rows: 0, bytes: 0, rawBytes: 0, blocks: [] };
    let ended = false;
    while (!ended && wantsMore(range)) {
      const blocks = await readBlocks(this.#reader, this.#keys.log, `${range.to}-0`, end, READ_BLOCKS);
      for (const block of blocks) {
        if (block.firstOffset !== range.to) {
          throw new Error(
            `shard ${this.shard}: expected the entry ${range.to} in the stream, got ${block.firstOffset}`,
          );
        }
        range.blocks.push(block);
        range.to += block.rows;
        range.rows += block.rows;
        range.bytes += block.block.length + block.digest.length;
        range.rawBytes += block.rawBytes;
        if (!wantsMore(range)) break;
      }
      ended = blocks.length < READ_BLOCKS;
    }
    return range;
  }

  /** Writes the plan down. False: this owner was replaced and must stop. */
  async writePlan(from: number, plan: string): Promise<boolean> {
    const args = [this.#consumer, this.#fence, String(from), plan];
    return (await planScript.run(this.#redis.client, [this.#keys.state], args)) === 1;
  }

  /**
   * Moves past the plan. False: this owner was replaced and must stop. Safe to repeat after a failure.
   *
   * @param receivedAtMs when the last block of the plan was received; it decides how long it can be replayed.
   */
  async commit(plan: string, to: number, bytes: number, receivedAtMs: number): Promise<boolean> {
    const args = [this.#consumer, this.#fence, plan, String(to), bytes, receivedAtMs];
    return (await commitScript.run(this.#redis.client, [this.#keys.state, this.#keys.marks], args)) === 1;
  }

  /** Moves past everything in the stream without reading it. False: this owner was replaced. */
  async advanceToEnd(): Promise<boolean> {
    const answer = await advanceScript.run(
      this.#redis.client,
      [this.#keys.state],
      [this.#consumer, this.#fence],
    );
    return answer !== null;
  }

  /**
   * Drops blocks that all consumers are past and that are older than the replay window (15 min; less when
   * the stream takes a large part of its share of the budget).
   *
   * @returns bytes the stream still holds.
   */
  async trim(nowMs: number): Promise<number> {
    const share = this.#redis.budgetBytes / this.#redis.shards;
    const keys = [this.#keys.log, this.#keys.state, this.#keys.marks];
    const limits = [Math.floor(share * PRESSURE_SHARE), Math.floor(share * NO_WINDOW_SHARE)];
    const args = [nowMs, REPLAY_WINDOW_MS, REPLAY_WINDOW_PRESSED_MS, ...limits, ...CONSUMERS];
    const answer = await trimScript.run(this.#redis.client, keys, args);
    return Array.isArray(answer) ? Number(answer[1]) : 0;
  }

  /** Ends a wait at once; the fenced changes (commit) still work. */
  [Symbol.dispose](): void {
    this.#redis.close(this.#reader);
  }
}

/** At most `count` blocks of a stream between two stream ids, in order. */
export async function readBlocks(
  client: Redis,
  logKey: string,
  start: string,
  end: string,
  count: number,
): Promise<StreamBlock[]> {
  try {
    const answer = await client.xrangeBuffer(logKey, start, end, 'COUNT', count);
    return answer.map(([id, fields]) => toStreamBlock(id, fields));
  } catch (error) {
    throw mapRedisError(error);
  }
}

/** Reads one entry of a stream as XRANGE gives it. */
export function toStreamBlock(id: Buffer, fields: Buffer[]): StreamBlock {
  const block = fields[1];
  const digest = fields[3];
  if (block === undefined || digest === undefined) {
    throw new Error(
      `expected the fields b and d in stream entry ${id.toString()}, got ${fields.length / 2} fields`,
    );
  }
  const { rows, rawBytes } = readBlockHeader(block);
  return {
    firstOffset: Number.parseInt(id.toString('latin1'), 10),
    rows,
    rawBytes,
    block,
    digest,
  };
}
