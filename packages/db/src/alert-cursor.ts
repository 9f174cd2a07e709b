import { askRedis } from './connect.ts';
import type { RedisClient, RedisStore } from './connect.ts';
import type { Ownership, ReadLimits } from './log-cursor.ts';
import { shardKeys } from './shard-map.ts';
import type { ShardKeys } from './shard-map.ts';
import { readStream } from './stream-block.ts';
import type { StreamBlock, StreamControl } from './stream-block.ts';

/** Blocks and changes of rules fetched by one XRANGE. */
const READ_ENTRIES = 16;

/** A place in a shard's stream: entries below `done` and changes of rules up to number `controls` lie before it. */
export type AlertPlace = { done: number; controls: number };

/** What lies behind a place, in order, and the place behind that. */
export type AlertRange = {
  to: AlertPlace;
  items: (StreamBlock | StreamControl)[];
  rows: number;
  /** The stream ended here when it was read. */
  isEnd: boolean;
};

/** Reads one shard's stream for the alert worker: entries, and the changes of rules between them. */
export class AlertCursor implements Disposable {
  readonly shard: number;
  readonly #redis: RedisStore;
  readonly #keys: ShardKeys;
  readonly #reader: RedisClient;

  private constructor(redis: RedisStore, shard: number, reader: RedisClient) {
    this.shard = shard;
    this.#redis = redis;
    this.#keys = shardKeys(redis.prefix, shard);
    this.#reader = reader;
  }

  /** Opens a connection of its own for reading. @throws {StoreError} `unavailable`. */
  static async open(redis: RedisStore, { shard }: Pick<Ownership, 'shard'>): Promise<AlertCursor> {
    return new AlertCursor(redis, shard, await redis.blocking());
  }

  /** Waits until something lies behind `place`, at most `timeoutMs` (below 10 s). @throws {StoreError} `unavailable`. */
  async waitForEntry(place: AlertPlace, timeoutMs: number): Promise<boolean> {
    const { log } = this.#keys;
    const after = renderPlace(place);
    const answer = await askRedis(
      this.#reader.xreadBuffer('COUNT', 1, 'BLOCK', timeoutMs, 'STREAMS', log, after),
    );
    return answer !== null;
  }

  /**
   * Reads what lies behind `place`, until one of the limits is reached or the stream ends.
   *
   * @throws {StoreError} `unavailable`.
   * @throws {Error} when the stream does not hold the next entry any more although it holds later ones.
   */
  async read(place: AlertPlace, limits: ReadLimits): Promise<AlertRange> {
    const range: AlertRange = { to: { ...place }, items: [], rows: 0, isEnd: false };
    let rawBytes = 0;
    let bytes = 0;
    while (
      !range.isEnd &&
      range.rows < limits.rowsMax &&
      bytes < limits.bytesMax &&
      rawBytes < limits.rawBytesMax
    ) {
      const part = { start: `(${renderPlace(range.to)}`, end: '+', count: READ_ENTRIES };
      const items = await readStream(this.#reader, this.#keys, part);
      for (const item of items) {
        this.#append(range, item);
        if ('block' in item) {
          bytes += item.block.length + item.digest.length;
          rawBytes += item.rawBytes;
        }
      }
      range.isEnd = items.length < READ_ENTRIES;
    }
    return range;
  }

  #append(range: AlertRange, item: StreamBlock | StreamControl): void {
    if ('block' in item) {
      if (item.firstOffset !== range.to.done) {
        throw new Error(
          `shard ${this.shard}: expected the entry ${range.to.done} in the stream, got ${item.firstOffset}`,
        );
      }
      range.to.done += item.rows;
      range.rows += item.rows;
    } else {
      range.to.controls = item.number;
    }
    range.items.push(item);
  }

  /** Ends a wait at once. */
  [Symbol.dispose](): void {
    this.#redis.close(this.#reader);
  }
}

/** The last stream id before the place. */
function renderPlace({ done, controls }: AlertPlace): string {
  return `${done - 1}-${controls}`;
}
