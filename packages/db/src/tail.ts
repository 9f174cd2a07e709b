import { readBlockHeader } from '@logpond/log-block/decode';
import { BlockError } from '@logpond/log-block/layout';
import { askRedis } from './connect.ts';
import type { RedisClient, RedisStore } from './connect.ts';
import { RedisScript } from './redis-script.ts';
import { shardKeys } from './shard-map.ts';
import type { ShardKeys } from './shard-map.ts';
import { ShardSubscription } from './shard-subscription.ts';
import { readBlocks } from './stream-block.ts';
import type { StreamBlock } from './stream-block.ts';

const watchScript = new RedisScript('log-stream.lua/watch.lua');
const unwatchScript = new RedisScript('log-stream.lua/unwatch.lua');

/** How long admit goes on publishing for a project after the last word of a reader. */
const WATCH_TTL_MS = 10_000;
const RENEW_MS = 3_000;
const CATCH_UP_BLOCKS = 16;

/** Where a shard's stream stood when a project began to be watched. */
export type WatchPoint = { epoch: number; nextOffset: number };

type Watched = WatchPoint & { lastPublished: number; hadLapsed: boolean; isShed: boolean };

/** A block whose header could be read. */
export type TailBlock = Pick<StreamBlock, 'firstOffset' | 'rows' | 'block'>;

export type TailListener = {
  /** The next block, in stream order and once. It may hold other projects' runs too. */
  onBlock: (epoch: number, block: TailBlock) => void;
  /**
   * Entries `[fromOffset, toOffset)` of this epoch will not come: they are gone, damaged, or were left out while the
   * stream is under pressure. Both are the first offset of a new epoch when what lay before it cannot be known.
   */
  onGap: (fromOffset: number, toOffset: number, epoch: number) => void;
  onError: (error: unknown) => void;
};

/**
 * Follows one shard live for the projects that have readers.
 *
 * Redis drops a subscriber that stalls, and what is published meanwhile is gone without a sign. Therefore
 * each message names the one published before it: when that is not what was seen last, or the watch had
 * lapsed, or what Redis published last never came, the missing part is read from the stream itself. What was not
 * published because the stream is under pressure is not read either: the listener is told of a gap.
 */
export class ShardTail implements AsyncDisposable {
  readonly #redis: RedisStore;
  readonly #keys: ShardKeys;
  readonly #listener: TailListener;
  readonly #reader: RedisClient;
  #subscription: ShardSubscription | undefined;
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

  private constructor(redis: RedisStore, shard: number, listener: TailListener, reader: RedisClient) {
    this.#redis = redis;
    this.#keys = shardKeys(redis.prefix, shard);
    this.#listener = listener;
    this.#reader = reader;
  }

  /** Subscribes to a shard. @throws {StoreError} `unavailable` when Redis cannot be reached. */
  static async open(redis: RedisStore, shard: number, listener: TailListener): Promise<ShardTail> {
    const tail = new ShardTail(redis, shard, listener, await redis.writer());
    try {
      tail.#subscription = await ShardSubscription.open(redis, tail.#keys.tailChannel, {
        onMessage: (message) => {
          try {
            tail.#receive(message);
          } catch (error) {
            listener.onError(error);
          }
        },
        // What was published while it did not stand is gone, and nothing may come that would show it.
        onSubscribed: () => {
          if (tail.#position !== undefined) tail.#catchUp();
        },
      });
      await unwatchScript.run(redis.client, [tail.#keys.tailed], []);
    } catch (error) {
      await tail[Symbol.asyncDispose]();
      throw error;
    }
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

  async #renew(projectIds: readonly string[]): Promise<Watched> {
    const keys = [this.#keys.tailed, this.#keys.state];
    const answer = await watchScript.run(this.#redis.client, keys, [WATCH_TTL_MS, ...projectIds]);
    const [epoch, next, last, lapsed, shed] = Array.isArray(answer) ? answer.map(Number) : [];
    if (epoch === undefined || next === undefined || last === undefined) {
      throw new TypeError(`expected five values of watch.lua, got ${JSON.stringify(answer)}`);
    }
    if (this.#epoch === 0) this.#epoch = epoch;
    return { epoch, nextOffset: next, lastPublished: last, hadLapsed: lapsed === 1, isShed: shed === 1 };
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
    if (this.#watched.size === 0) return;
    const before = this.#lastPublished;
    const point = await this.#renew([...this.#watched]);
    this.#lastPublished = point.lastPublished;
    if (point.isShed && point.epoch === this.#epoch) {
      // Reading what was not published would burden a server that is short of memory already.
      const isSkipped = point.lastPublished >= (this.#position ?? point.nextOffset);
      const isMissing = isSkipped || (point.hadLapsed && point.nextOffset > (this.#position ?? 0));
      if (isMissing && this.#catchingUp === undefined) this.#skipTo(point.nextOffset);
      return;
    }
    const missed = this.#position !== undefined && before >= this.#position;
    // It was published 3 s ago and did not come: whatever the connection looks like, it brings nothing.
    if (missed && !point.hadLapsed && this.#catchingUp === undefined) this.#subscription?.renew();
    if (point.hadLapsed || missed || point.epoch !== this.#epoch) this.#catchUp();
  }

  #skipTo(offset: number): void {
    const from = this.#position ?? offset;
    this.#position = offset;
    this.#listener.onGap(from, offset, this.#epoch);
  }

  #receive(message: Buffer): void {
    const end = message.indexOf(0x0a);
    const [before = 0, firstOffset = 0, epoch = 0] = message
      .toString('latin1', 0, end)
      .split(' ')
      .map(Number);
    const position = this.#position;
    if (position === undefined || (epoch === this.#epoch && firstOffset < position)) return;
    const block = message.subarray(end + 1);
    const rows = readRows(block);
    // The stream tells where a block ends whose header is damaged.
    if (this.#catchingUp !== undefined || epoch !== this.#epoch || before >= position || rows === undefined) {
      this.#catchUp();
      return;
    }
    this.#deliver({ firstOffset, rows, block });
  }

  #deliver(block: TailBlock): void {
    this.#position = block.firstOffset + block.rows;
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
    if (!(await this.#enterEpoch())) return;
    do {
      this.#mustReadAgain = false;
      while (!this.#closed) {
        const from = this.#position ?? 1;
        const range = { start: `${from}-0`, end: '+', count: CATCH_UP_BLOCKS };
        const blocks = await readBlocks(this.#reader, this.#keys, range);
        if (this.#closed || blocks.length === 0) break;
        const first = blocks[0]?.firstOffset ?? from;
        if (first > from) this.#skipTo(first);
        for (const block of blocks) {
          if (block.damage === undefined) this.#deliver(block);
          else this.#skipTo(block.firstOffset + block.rows);
        }
      }
    } while (this.#mustReadAgain && !this.#closed);
  }

  /** False: the shard has no epoch at the moment; the next renewal looks again. */
  async #enterEpoch(): Promise<boolean> {
    const answer = await askRedis(this.#reader.hmget(this.#keys.state, 'epoch', 'epochFrom'));
    const epoch = Number(answer[0] ?? 0);
    if (epoch === 0) return false;
    if (epoch !== this.#epoch) {
      // Another history: what lay between cannot be known, and what lies below belongs to the one before.
      this.#epoch = epoch;
      this.#position = Number(answer[1] ?? 1);
      this.#skipTo(this.#position);
    }
    return true;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#closed = true;
    clearTimeout(this.#timer);
    this.#subscription?.[Symbol.dispose]();
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
  const keys = shardKeys(redis.prefix, shard);
  const end = `(${toOffset}-0`;
  const range = { start: `${fromOffset}-0`, end, count: CATCH_UP_BLOCKS };
  let blocks = await readBlocks(redis.client, keys, range);
  if (blocks[0]?.firstOffset !== fromOffset) {
    const before = await findBlockBefore(redis.client, keys, fromOffset);
    if (before !== undefined && before.firstOffset + before.rows > fromOffset) blocks = [before, ...blocks];
  }
  const first = blocks[0];
  return { firstOffset: first === undefined ? undefined : Math.max(first.firstOffset, fromOffset), blocks };
}

async function findBlockBefore(
  client: RedisClient,
  keys: ShardKeys,
  offset: number,
): Promise<StreamBlock | undefined> {
  const findBefore = async (end: string): Promise<string | undefined> => {
    const [entry] = await askRedis(client.xrevrangeBuffer(keys.log, end, '-', 'COUNT', 1));
    return entry?.[0].toString('latin1');
  };
  let id = await findBefore(`(${offset}-0`);
  // A change of rules: all that lie between two blocks carry the same offset.
  if (id !== undefined && !id.endsWith('-0')) id = await findBefore(`(${Number.parseInt(id, 10)}-1`);
  if (id === undefined) return undefined;
  const [block] = await readBlocks(client, keys, { start: id, end: id, count: 1 });
  return block;
}

/** Undefined when the header is damaged. */
function readRows(block: Buffer): number | undefined {
  try {
    return readBlockHeader(block).rows;
  } catch (error) {
    if (error instanceof BlockError || error instanceof RangeError) return undefined;
    throw error;
  }
}
