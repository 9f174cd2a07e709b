import { apportionBlock } from '@logpond/log-block/apportion';
import { askRedis, mapRedisError } from './connect.ts';
import type { RedisClient, RedisStore } from './connect.ts';
import type { OffsetRange } from './offset-range.ts';
import { RedisScript } from './redis-script.ts';
import { CONSUMERS, shardKeys } from './shard-map.ts';
import type { Consumer, ShardKeys } from './shard-map.ts';
import { readBlocks } from './stream-block.ts';
import type { StreamBlock } from './stream-block.ts';

const planScript = new RedisScript('log-stream.lua/plan.lua');
const commitScript = new RedisScript('log-stream.lua/commit.lua');
const trimScript = new RedisScript('log-stream.lua/trim.lua');

const CONSUMER: Consumer = 'ingest';
/** Blocks fetched by one XRANGE. A block is at most a few megabytes, so an answer stays below the read limit. */
const READ_BLOCKS = 16;
/** A range ends with the block that reaches one of them: the commit names each project of it. */
const RANGE_BLOCKS_MAX = 20_000;
const RANGE_PROJECTS_MAX = 10_000;
const REPLAY_WINDOW_PRESSED_MS = 2 * 60_000;
/** What the clocks of two workers may differ by. */
const CLOCKS_APART_MS = 60_000;
/** Shares of a shard's budget above which the replay window shrinks, and above which there is none. */
const PRESSURE_SHARE = 0.4;
const NO_WINDOW_SHARE = 0.5;

/** Entries `[from, to)` of a shard, whole blocks; `bytes` as they lie in the stream, `rawBytes` inflated. */
export type StreamRange = {
  from: number;
  to: number;
  rows: number;
  bytes: number;
  rawBytes: number;
  blocks: StreamBlock[];
  /** What each project has in it. */
  shares: Map<string, { rows: number; bytes: number }>;
};

/** Reading stops with the block that reaches one of them. */
export type ReadLimits = { rowsMax: number; bytesMax: number; rawBytesMax: number };

/** Whether a range has reached one of the limits. */
export function isAtLimit(range: StreamRange, limits: ReadLimits): boolean {
  return (
    range.rows >= limits.rowsMax ||
    range.bytes >= limits.bytesMax ||
    range.rawBytes >= limits.rawBytesMax ||
    range.blocks.length >= RANGE_BLOCKS_MAX ||
    range.shares.size >= RANGE_PROJECTS_MAX
  );
}

/** What a lease gives: who owns which shard, and where it goes on. */
export type Ownership = {
  shard: number;
  fence: string;
  epoch: number;
  done: number;
  plan: string | undefined;
  /** Owners that found this plan open and did not commit it, this one included; 0 without a plan. */
  planTries: number;
  /** What of the plan an earlier owner buried or passed over: it is never inserted. Absent: nothing. */
  buried?: readonly OffsetRange[];
  /** This Redis is behind ClickHouse: whatever it holds may be stored already. */
  isDraining: boolean;
};

/**
 * The ingest worker's place in one shard's stream, held under a lease. (The alert worker's is in alert-windows.ts.)
 *
 * The states are `idle` (no plan: everything below `done` is stored) and `planned` (a range is written down
 * and may be stored in part). `writePlan` goes from the first to the second, `commit` back. Both are refused
 * for an owner whose fence is not the newest, so a paused or forgotten worker changes nothing.
 */
export class LogCursor implements Disposable {
  readonly shard: number;
  readonly epoch: number;
  readonly #redis: RedisStore;
  readonly #keys: ShardKeys;
  readonly #fence: string;
  readonly #reader: RedisClient;

  private constructor(redis: RedisStore, ownership: Ownership, reader: RedisClient) {
    this.shard = ownership.shard;
    this.epoch = ownership.epoch;
    this.#redis = redis;
    this.#fence = ownership.fence;
    this.#keys = shardKeys(redis.prefix, ownership.shard);
    this.#reader = reader;
  }

  /** Opens a connection of its own for reading. @throws {StoreError} `unavailable`. */
  static async open(redis: RedisStore, ownership: Ownership): Promise<LogCursor> {
    return new LogCursor(redis, ownership, await redis.blocking());
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
    const range: StreamRange = {
      from,
      to: from,
      rows: 0,
      bytes: 0,
      rawBytes: 0,
      blocks: [],
      shares: new Map(),
    };
    let ended = false;
    while (!ended && wantsMore(range)) {
      const blocks = await readBlocks(this.#reader, this.#keys, {
        start: `${range.to}-0`,
        end,
        count: READ_BLOCKS,
      });
      for (const block of blocks) {
        if (block.firstOffset !== range.to) {
          throw new Error(
            `shard ${this.shard}: expected the entry ${range.to} in the stream, got ${block.firstOffset}`,
          );
        }
        addBlock(range, block);
        if (!wantsMore(range)) break;
      }
      ended = blocks.length < READ_BLOCKS;
    }
    return range;
  }

  /**
   * Writes the plan down, on `REDIS_WAIT_REPLICAS` replicas too: whatever is inserted is then known to the server
   * that takes over. False: this owner was replaced and must stop. Safe to repeat after a failure.
   */
  async writePlan(from: number, plan: string): Promise<boolean> {
    const args = [CONSUMER, this.#fence, String(from), plan];
    const { client, waitReplicas } = this.#redis;
    return (await planScript.runReplicated(client, [this.#keys.state], args, waitReplicas)) === 1;
  }

  /**
   * Moves past the plan and takes its entries out of the backlog. False: this owner was replaced and must stop. Safe
   * to repeat after a failure.
   *
   * @param receivedAtMs when the last block of the plan was received; it decides how long it can be replayed.
   * @param audit kept for `listAudits`.
   */
  async commit(plan: string, range: StreamRange, receivedAtMs: number, audit = ''): Promise<boolean> {
    const args = [
      CONSUMER,
      this.#fence,
      plan,
      String(range.to),
      range.bytes,
      receivedAtMs,
      Date.now(),
      audit,
      ...[...range.shares].flatMap(([projectId, { bytes, rows }]) => [projectId, bytes, rows]),
    ];
    const { state, marks, backlog, audits } = this.#keys;
    return (await commitScript.run(this.#redis.client, [state, marks, backlog, audits], args)) === 1;
  }

  /**
   * Audit records of plans that were committed before a time, oldest first; at most `limit`. One of the future was
   * written before the clock was set back: it is due, lest it keep all behind it waiting.
   */
  async listAudits(dueBeforeMs: number, limit: number): Promise<string[]> {
    const records = await askRedis(this.#redis.client.lrange(this.#keys.audits, 0, limit - 1));
    const due: string[] = [];
    for (const record of records) {
      const at = record.indexOf(' ');
      const committedAtMs = Number(record.slice(0, at));
      if (committedAtMs >= dueBeforeMs && committedAtMs <= Date.now() + CLOCKS_APART_MS) break;
      due.push(record.slice(at + 1));
    }
    return due;
  }

  /** How many plans of this shard were never audited because more than 10,000 waited, since it began. */
  async countUnaudited(): Promise<number> {
    return Number((await askRedis(this.#redis.client.hget(this.#keys.state, `${CONSUMER}:unaudited`))) ?? 0);
  }

  /** Forgets records that `listAudits` gave, from the oldest on. Two owners at once may audit twice, which is harmless. */
  async dropAudits(audits: readonly string[]): Promise<void> {
    for (const audit of audits) {
      const [oldest] = await askRedis(this.#redis.client.lrange(this.#keys.audits, 0, 0));
      if (oldest?.slice(oldest.indexOf(' ') + 1) !== audit) return;
      await askRedis(this.#redis.client.lrem(this.#keys.audits, 1, oldest));
    }
  }

  /**
   * Drops blocks that all consumers are past and that are older than `REPLAY_WINDOW_MS` (less when
   * the stream takes a large part of its share of the budget).
   *
   * @returns bytes the stream still holds, their share of what it may hold, and the consumer that is furthest behind.
   */
  async trim(nowMs: number): Promise<{ heldBytes: number; share: number; slowest: string }> {
    const share = this.#redis.budgetBytes / this.#redis.shards;
    const keys = [this.#keys.log, this.#keys.state, this.#keys.marks];
    const limits = [Math.floor(share * PRESSURE_SHARE), Math.floor(share * NO_WINDOW_SHARE)];
    const windowMs = this.#redis.replayWindowMs;
    const pressedMs = Math.min(windowMs, REPLAY_WINDOW_PRESSED_MS);
    const args = [nowMs, windowMs, pressedMs, ...limits, ...CONSUMERS];
    const answer = await trimScript.run(this.#redis.client, keys, args);
    const [slowest = '', held = 0] = Array.isArray(answer) ? answer.map(String) : [];
    return { heldBytes: Number(held), share: Number(held) / share, slowest };
  }

  /** Ends a wait at once; the fenced changes (commit) still work. */
  [Symbol.dispose](): void {
    this.#redis.close(this.#reader);
  }
}

function addBlock(range: StreamRange, block: StreamBlock): void {
  const bytes = block.block.length + block.digest.length;
  range.blocks.push(block);
  range.to += block.rows;
  range.rows += block.rows;
  range.bytes += bytes;
  range.rawBytes += block.rawBytes;
  for (const share of apportionBlock(block.runs, bytes)) {
    const sum = range.shares.get(share.projectId) ?? { rows: 0, bytes: 0 };
    range.shares.set(share.projectId, { rows: sum.rows + share.rows, bytes: sum.bytes + share.bytes });
  }
}
