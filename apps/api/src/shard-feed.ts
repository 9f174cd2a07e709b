import type { RedisStore } from '@logpond/db/connect';
import { ShardTail } from '@logpond/db/tail';
import type { TailBlock, WatchPoint } from '@logpond/db/tail';
import { decodeBlock } from '@logpond/log-block/decode';
import type { Log } from '@logpond/runtime/log';
import type { EntryPredicate } from './entry-filter.ts';
import type { TailClient } from './tail-client.ts';
import { encodeEvents } from './tail-events.ts';

/** What readers with the same wishes share. */
export type TailView = { projectId: string; withProjectId: boolean; predicate: EntryPredicate };

/** Where a reader went live: it has, or did not ask for, what lies below. */
type LivePoint = { epoch: number; offset: number };

type Group = TailView & { clients: Map<TailClient, LivePoint> };

/** One shard's live entries, given to the readers of its projects. */
export class ShardFeed implements AsyncDisposable {
  readonly #shard: number;
  readonly #log: Log;
  readonly #groups = new Map<string, Group>();
  /** Readers of each project, those that still replay included. */
  readonly #readers = new Map<string, number>();
  #tail: ShardTail | undefined;
  #epoch = 0;
  #passed = 0;

  private constructor(shard: number, log: Log) {
    this.#shard = shard;
    this.#log = log.child({ shard });
  }

  /** Subscribes to a shard. @throws {StoreError} `unavailable`. */
  static async open(redis: RedisStore, shard: number, log: Log): Promise<ShardFeed> {
    const feed = new ShardFeed(shard, log);
    feed.#tail = await ShardTail.open(redis, shard, {
      onBlock: (epoch, block) => feed.#receive(epoch, block),
      onGap: (_fromOffset, toOffset, epoch) => {
        feed.#pass(epoch, toOffset);
        feed.#tellGap();
      },
      onError: (error) => feed.#log.warn({ err: error }, 'the live tail has trouble with Redis'),
    });
    return feed;
  }

  /** The epoch of what came last; 0 when nothing has come yet. */
  get epoch(): number {
    return this.#epoch;
  }

  /** What lies below it was handed to the readers that had joined, or they were told of a gap. */
  passedTo(epoch: number): number {
    return epoch === this.#epoch ? this.#passed : 0;
  }

  /** Offsets of two epochs have nothing to do with each other. */
  #pass(epoch: number, toOffset: number): void {
    this.#epoch = epoch;
    this.#passed = toOffset;
  }

  /** A reader begins: from the offset returned on, all entries of its project come by here. */
  async enter(projectId: string): Promise<WatchPoint> {
    if (this.#tail === undefined) throw new Error('expected an open feed');
    this.#readers.set(projectId, (this.#readers.get(projectId) ?? 0) + 1);
    try {
      return await this.#tail.watch(projectId);
    } catch (error) {
      this.exit(projectId);
      throw error;
    }
  }

  /** The reader ends. */
  exit(projectId: string): void {
    const left = (this.#readers.get(projectId) ?? 1) - 1;
    if (left > 0) {
      this.#readers.set(projectId, left);
      return;
    }
    this.#readers.delete(projectId);
    this.#tail?.unwatch(projectId);
  }

  /**
   * The reader is given every block from `from` on. Returns the way out.
   *
   * The tail may still deliver blocks below it: it catches up from the last block that was published, and those
   * of a project that nobody tailed were not.
   */
  join(view: TailView, filterKey: string, client: TailClient, from: LivePoint): () => void {
    const key = `${view.projectId} ${view.withProjectId} ${filterKey}`;
    const group = this.#groups.get(key) ?? { ...view, clients: new Map() };
    this.#groups.set(key, group);
    group.clients.set(client, from);
    return () => {
      group.clients.delete(client);
      if (group.clients.size === 0) this.#groups.delete(key);
    };
  }

  #receive(epoch: number, { firstOffset, rows, block }: TailBlock): void {
    this.#pass(epoch, firstOffset + rows);
    try {
      this.#fanOut(epoch, firstOffset, block);
    } catch (error) {
      // A block that cannot be read must not end the process that serves all other readers.
      this.#log.error({ err: error, firstOffset }, 'a block cannot be shown to the readers');
      this.#tellGap();
    }
  }

  #fanOut(epoch: number, firstOffset: number, bytes: Buffer): void {
    const block = decodeBlock(bytes);
    for (const group of this.#groups.values()) {
      const scope = { epoch, shard: this.#shard, firstOffset, fromOffset: 0, ...group };
      const chunk = encodeEvents(block, scope, group.predicate);
      if (chunk === undefined) continue;
      for (const [client, from] of group.clients) {
        if (epoch !== from.epoch || firstOffset >= from.offset) client.push(chunk);
      }
    }
  }

  #tellGap(): void {
    for (const group of this.#groups.values()) {
      for (const client of group.clients.keys()) client.pushGap({ from: null, to: null, dropped: null });
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#tail?.[Symbol.asyncDispose]();
  }
}
