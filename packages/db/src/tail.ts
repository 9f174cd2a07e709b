import type { Redis } from 'ioredis';
import { mapRedisError } from './connect.ts';
import type { RedisStore } from './connect.ts';
import { readBlocks, toStreamBlock } from './log-cursor.ts';
import type { StreamBlock } from './log-cursor.ts';
import { RedisScript } from './redis-script.ts';
import { shardKeys } from './shard-map.ts';
import type { ShardKeys } from './shard-map.ts';
import { readBlockHeader } from '@logpond/log-block/decode';

const watchScript = new RedisScript('log-stream.lua/watch.lua');
const unwatchScript = new RedisScript('log-stream.lua/unwatch.lua');

/** How long admit goes on publishing for a project after the last word of a reader. */
const WATCH_TTL_MS = 10_000;
const RENEW_MS = 3_000;
const CATCH_UP_BLOCKS = 16;

/** Where a shard's stream stood when a project began to be watched. */
export type WatchPoint = { epoch: number; nextOffset: number };

export type TailListener = {
  /** The next block, in stream order and once. It may hold other projects' runs too. */
  onBlock: (epoch: number, block: Pick<StreamBlock, 'firstOffset' | 'block'>) => void;
  /** Entries that can no longer be had: `[fromOffset, toOffset)` of this shard. */
  onGap: (fromOffset: number, toOffset: number) => void;
  onError: (error: unknown) => void;
};

/**
 * Follows one shard live for the projects that have readers.
 *
 * Redis drops a subscriber that stalls, and what is published meanwhile is gone without a sign. Therefore
 * each message names the one published before it: when that is not what was seen last, or the watch had
 * lapsed, or what Redis published last never came, the missing part is read from the stream itself.
 */
export class ShardTail implements AsyncDisposable {
  readonly #redis: RedisStore;
  readonly #keys: ShardKeys;
  readonly #listener: TailListener;
  readonly #subscriber: Redis;
  readonly #reader: Redis;
  readonly #watched = new Set<string>();
  /** Everything below it was delivered; undefined until the first watch. */
  #position: number | undefined;
  #epoch = 0;
  /** What Redis had published last, as told by the renewal before this one. */
  #lastPublished = 0;
  #catchingUp: Promise<void> | undefined;
  #mustReadAgain = false;
  #timer: NodeJS.Timeout | undefined;
  #closed = false;

  private constructor(redis: RedisStore, shard: number, listener: TailListener, reader: Redis) {
    this.#redis = redis;
    this.#keys = shardKeys(redis.prefix, shard);
    this.#listener = listener;
    this.#subscriber = redis.subscriber();
    this.#reader = reader;
  }

  /** Subscribes to a shard. @throws {StoreError} `unavailable` when Redis cannot be reached. */
  static async open(redis: RedisStore, shard: number, listener: TailListener): Promise<ShardTail> {
    const tail = new ShardTail(redis, shard, listener, await redis.writer());
    tail.#subscriber.on('messageBuffer', (_channel: Buffer, message: Buffer) => {
      try {
        tail.#receive(message);
      } catch (error) {
        listener.onError(error);
      }
    });
    try {
      await tail.#subscriber.subscribe(tail.#keys.tailChannel);
    } catch (error) {
      await tail[Symbol.asyncDispose]();
      throw mapRedisError(error);
    }
    tail.#subscriber.on('ready', () => tail.#resume());
    tail.#scheduleRenewal();
    return tail;
  }

  /**
   * Begins to watch a project: every block admitted from now on reaches the listener.
   *
   * @returns the offset from which on the listener is given all; older ones are for `readTailRange`.
   */
  async watch(projectId: string): Promise<WatchPoint> {
    const point = await this.#renew([projectId]);
    this.#watched.add(projectId);
    this.#position ??= point.nextOffset;
    return { epoch: point.epoch, nextOffset: point.nextOffset };
  }

  /** Stops watching; admit stops publishing for the project soon after. */
  unwatch(projectId: string): void {
    this.#watched.delete(projectId);
  }

  async #renew(
    projectIds: readonly string[],
  ): Promise<WatchPoint & { lastPublished: number; hadLapsed: boolean }> {
    const keys = [this.#keys.tailed, this.#keys.state];
    const answer = await watchScript.run(this.#redis.client, keys, [WATCH_TTL_MS, ...projectIds]);
    const [epoch, next, last, lapsed] = Array.isArray(answer) ? answer.map(Number) : [];
    if (epoch === undefined || next === undefined || last === undefined) {
      throw new TypeError('expected four values of watch.lua');
    }
    if (this.#epoch === 0) this.#epoch = epoch;
    return { epoch, nextOffset: next, lastPublished: last, hadLapsed: lapsed === 1 };
  }

  #scheduleRenewal(): void {
    this.#timer = setTimeout(() => {
      void this.#renewAll()
        .catch(this.#listener.onError)
        .then(() => {
          if (!this.#closed) this.#scheduleRenewal();
        });
    }, RENEW_MS);
  }

  async #renewAll(): Promise<void> {
    if (this.#watched.size === 0) {
      await unwatchScript.run(this.#redis.client, [this.#keys.tailed], []);
      return;
    }
    const before = this.#lastPublished;
    const point = await this.#renew([...this.#watched]);
    this.#lastPublished = point.lastPublished;
    const missed = this.#position !== undefined && before >= this.#position;
    if (point.hadLapsed || missed || point.epoch !== this.#epoch) this.#catchUp();
  }

  /** After a reconnect: what was published meanwhile is gone, and nothing may come that would show it. */
  #resume(): void {
    const resubscribed = this.#subscriber.subscribe(this.#keys.tailChannel);
    const catchUp = (): void => {
      if (this.#position !== undefined && !this.#closed) this.#catchUp();
    };
    // A connection that broke again becomes ready again.
    resubscribed.then(catchUp, () => undefined);
  }

  #receive(message: Buffer): void {
    const end = message.indexOf(0x0a);
    const [before = 0, firstOffset = 0, epoch = 0] = message
      .toString('latin1', 0, end)
      .split(' ')
      .map(Number);
    const position = this.#position;
    if (position === undefined || (epoch === this.#epoch && firstOffset < position)) return;
    if (this.#catchingUp !== undefined || epoch !== this.#epoch || before >= position) {
      this.#catchUp();
      return;
    }
    this.#deliver({ firstOffset, block: message.subarray(end + 1) });
  }

  #deliver(block: Pick<StreamBlock, 'firstOffset' | 'block'>): void {
    this.#position = block.firstOffset + readBlockHeader(block.block).rows;
    this.#listener.onBlock(this.#epoch, block);
  }

  /** Reads from the stream what is missing; while it runs, messages only say that there is more to read. */
  #catchUp(): void {
    if (this.#catchingUp !== undefined) {
      this.#mustReadAgain = true;
      return;
    }
    this.#catchingUp = this.#readToEnd()
      .catch((error: unknown) => {
        this.#listener.onError(error);
        // The next renewal tries again.
        this.#lastPublished = Number.MAX_SAFE_INTEGER;
      })
      .finally(() => {
        this.#catchingUp = undefined;
      });
  }

  async #readToEnd(): Promise<void> {
    const epoch = Number((await this.#reader.hget(this.#keys.state, 'epoch')) ?? 0);
    if (epoch !== this.#epoch) {
      // Another history: offsets begin again at 1, what lay between cannot be known.
      this.#listener.onGap(this.#position ?? 0, this.#position ?? 0);
      this.#epoch = epoch;
      this.#position = 1;
    }
    do {
      this.#mustReadAgain = false;
      for (;;) {
        const from = this.#position ?? 1;
        const blocks = await readBlocks(this.#reader, this.#keys.log, `${from}-0`, '+', CATCH_UP_BLOCKS);
        if (this.#closed || blocks.length === 0) break;
        const first = blocks[0]?.firstOffset ?? from;
        if (first > from) this.#listener.onGap(from, first);
        for (const block of blocks) this.#deliver(block);
      }
    } while (this.#mustReadAgain && !this.#closed);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#closed = true;
    clearTimeout(this.#timer);
    this.#redis.close(this.#subscriber);
    await this.#catchingUp;
    this.#redis.close(this.#reader);
  }
}

/** A part of a shard's stream for a reader that comes back. */
export type TailRange = {
  /** Offset of the oldest entry that the stream still holds at or above `fromOffset`; undefined when none. */
  firstOffset: number | undefined;
  blocks: StreamBlock[];
};

/**
 * Reads the next few blocks that hold entries in `[fromOffset, toOffset)`, starting with the block that
 * holds `fromOffset` even when it begins earlier.
 */
export async function readTailRange(
  redis: RedisStore,
  shard: number,
  fromOffset: number,
  toOffset: number,
): Promise<TailRange> {
  const { log } = shardKeys(redis.prefix, shard);
  const end = `(${toOffset}-0`;
  let blocks = await readBlocks(redis.client, log, `${fromOffset}-0`, end, CATCH_UP_BLOCKS);
  if (blocks[0]?.firstOffset !== fromOffset) {
    const [before] = await redis.client.xrevrangeBuffer(log, `(${fromOffset}-0`, '-', 'COUNT', 1);
    if (before !== undefined) {
      const straddling = toStreamBlock(before[0], before[1]);
      if (straddling.firstOffset + straddling.rows > fromOffset) blocks = [straddling, ...blocks];
    }
  }
  const first = blocks[0];
  return { firstOffset: first === undefined ? undefined : Math.max(first.firstOffset, fromOffset), blocks };
}
