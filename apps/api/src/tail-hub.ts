import type { RedisStore } from '@logpond/db/connect';
import { StoreError } from '@logpond/db/store-error';
import type { StreamBlock } from '@logpond/db/stream-block';
import { readTailRange } from '@logpond/db/tail';
import { shardOf } from '@logpond/db/shard-map';
import { decodeBlock } from '@logpond/log-block/decode';
import type { DecodedBlock } from '@logpond/log-block/decode';
import { decodeEntryId } from '@logpond/log-block/entry-id';
import { BlockError } from '@logpond/log-block/layout';
import type { Log } from '@logpond/runtime/log';
import { declareGauge } from '@logpond/runtime/metrics';
import { formatTimestampNs } from '@logpond/schema/timestamp';
import type { LogFilter } from '@logpond/schema/log-query';
import { compileFilter } from './entry-filter.ts';
import type { EntryPredicate } from './entry-filter.ts';
import { ShardFeed } from './shard-feed.ts';
import type { TailView } from './shard-feed.ts';
import { TailClient } from './tail-client.ts';
import { encodeEvents } from './tail-events.ts';

const HEARTBEAT_MS = 10_000;
const WATCH_TIMEOUT_MS = 5_000;

export type TailRequest = {
  projectId: string;
  filter: LogFilter;
  /** Id of the last entry that the reader has; what came after it is sent first. */
  lastEventId?: string;
  /** Whether entries carry their `project_id`: when a session asked. */
  withProjectId: boolean;
  /** Ends the stream from this side: a revoked key, a stopping process. */
  signal: AbortSignal;
};

/** Where a reader that comes back goes on; `gap` says that it cannot be told what it missed. */
type Resumption = { fromOffset: number; sinceMs: number } | 'gap' | undefined;

/**
 * Hands the entries of the live stream to this process's readers.
 *
 * One subscription a shard serves all of them; readers of a project with the same filter share the work of
 * filtering and rendering. Open tails cost ClickHouse nothing.
 */
export class TailHub implements AsyncDisposable {
  readonly #redis: RedisStore;
  readonly #log: Log;
  /** Feeds with the number of readers that use or await each. */
  readonly #feeds = new Map<number, { opening: Promise<ShardFeed>; users: number }>();
  readonly #clients = new Set<TailClient>();
  readonly #serving = new Set<Promise<void>>();
  readonly #heartbeat: NodeJS.Timeout;

  constructor(options: { redis: RedisStore; log: Log }) {
    this.#redis = options.redis;
    this.#log = options.log;
    this.#heartbeat = setInterval(() => {
      for (const client of this.#clients) client.pushHeartbeat();
    }, HEARTBEAT_MS).unref();
  }

  /**
   * Opens a stream of Server-Sent Events: entries admitted from now on, or from `lastEventId` on, without a
   * hole and without a repetition, as far back as the replay window goes; what cannot be had is told by an
   * event `gap`.
   *
   * Resolves once the watch stands: whoever sees the answer begin gets every entry that is sent from then on.
   *
   * @throws {ApiError} VALIDATION_ERROR for a filter that a stream cannot have.
   * @throws {StoreError} `unavailable` when the watch does not stand within 5 s.
   */
  async open(request: TailRequest): Promise<ReadableStream<Uint8Array>> {
    const predicate = compileFilter(request.filter);
    const gone = Promise.withResolvers<void>();
    const client = new TailClient(gone.resolve);
    this.#clients.add(client);
    openTails.set(this.#clients.size);
    const end = (): void => client.close();
    request.signal.addEventListener('abort', end, { once: true });
    if (request.signal.aborted) end();
    const watching = Promise.withResolvers<void>();
    const serving = this.#serve({ ...request, onWatching: watching.resolve }, predicate, client, gone.promise)
      .catch((error: unknown) => {
        watching.reject(error);
        // The reader sees its connection end and comes back with its last id.
        this.#log.warn({ err: error, projectId: request.projectId }, 'a live tail failed');
      })
      .finally(() => {
        request.signal.removeEventListener('abort', end);
        client.close();
        this.#clients.delete(client);
        this.#serving.delete(serving);
        openTails.set(this.#clients.size);
      });
    this.#serving.add(serving);
    const late = setTimeout(() => {
      watching.reject(new StoreError('redis', 'unavailable', `no watch within ${WATCH_TIMEOUT_MS} ms`));
      client.close();
    }, WATCH_TIMEOUT_MS);
    await watching.promise.finally(() => clearTimeout(late));
    return client.stream;
  }

  async #serve(
    request: TailRequest & { onWatching: () => void },
    predicate: EntryPredicate,
    client: TailClient,
    gone: Promise<void>,
  ): Promise<void> {
    const { projectId, withProjectId } = request;
    const shard = shardOf(projectId, this.#redis.shards);
    await using use = this.#useFeed(shard);
    const feed = await use.opening;
    const point = await feed.enter(projectId);
    request.onWatching();
    try {
      client.begin();
      const resumption = findResumption(request.lastEventId, { ...point, shard });
      if (resumption === 'gap') client.pushGap({ from: null, to: null, dropped: null });
      let position = typeof resumption === 'object' ? resumption.fromOffset : point.nextOffset;
      let sinceMs = typeof resumption === 'object' ? resumption.sinceMs : undefined;
      for (;;) {
        const until = Math.max(point.nextOffset, feed.passedTo(point.epoch));
        // No await between this check and going live: nothing can come in between.
        if (position >= until || client.isClosed) break;
        position = await this.#replay(
          { shard, epoch: point.epoch, projectId, withProjectId, predicate, client },
          position,
          until,
          sinceMs,
        );
        sinceMs = undefined;
      }
      // Redis lost its history meanwhile; who had joined was told so.
      if (feed.epoch > point.epoch) client.pushGap({ from: null, to: null, dropped: null });
      const view = { projectId, withProjectId, predicate };
      const from = { epoch: point.epoch, offset: position };
      const leave = feed.join(view, nameFilter(request.filter), client, from);
      client.markLive();
      await gone;
      leave();
    } finally {
      feed.exit(projectId);
    }
  }

  /** Sends one stretch of `[position, until)` from the stream. Returns where to go on. */
  async #replay(
    reader: TailView & { shard: number; epoch: number; client: TailClient },
    position: number,
    until: number,
    sinceMs: number | undefined,
  ): Promise<number> {
    const { shard, epoch, projectId, withProjectId, predicate, client } = reader;
    const range = await readTailRange(this.#redis, shard, position, until);
    const first = range.blocks[0];
    if (first === undefined || (range.firstOffset ?? 0) > position) {
      const from = sinceMs === undefined ? null : new Date(sinceMs).toISOString();
      const receivedAtNs = first && decodeIfWhole(first)?.receivedAtNs;
      const to = receivedAtNs === undefined ? null : formatTimestampNs(receivedAtNs);
      client.pushGap({ from, to, dropped: null });
    }
    let next = position;
    for (const found of range.blocks) {
      const block = decodeIfWhole(found);
      const { firstOffset } = found;
      const scope = { epoch, shard, firstOffset, projectId, withProjectId, fromOffset: position };
      const chunk = block && encodeEvents(block, scope, predicate);
      if (block === undefined) client.pushGap({ from: null, to: null, dropped: null });
      if (chunk !== undefined) client.push(chunk);
      await client.drained();
      next = firstOffset + found.rows;
    }
    return first === undefined ? until : next;
  }

  /** Counts a reader in before anything is awaited, so that no feed is closed under one that just comes. */
  #useFeed(shard: number): { opening: Promise<ShardFeed> } & AsyncDisposable {
    const known = this.#feeds.get(shard);
    const feed = known ?? { opening: ShardFeed.open(this.#redis, shard, this.#log), users: 0 };
    feed.users += 1;
    this.#feeds.set(shard, feed);
    return {
      opening: feed.opening,
      [Symbol.asyncDispose]: async () => {
        feed.users -= 1;
        if (feed.users > 0) return;
        this.#feeds.delete(shard);
        // An opening that failed was told to its reader and left nothing open.
        const opened = await feed.opening.catch(() => undefined);
        await opened?.[Symbol.asyncDispose]();
      },
    };
  }

  /** Ends every stream; readers come back with their last id. */
  async [Symbol.asyncDispose](): Promise<void> {
    clearInterval(this.#heartbeat);
    for (const client of this.#clients) client.close();
    await Promise.all(this.#serving);
  }
}

/** Undefined for a damaged block: its readers are told of a gap and go on behind it. */
function decodeIfWhole({ block, damage }: StreamBlock): DecodedBlock | undefined {
  if (damage !== undefined) return undefined;
  try {
    return decodeBlock(block);
  } catch (error) {
    if (error instanceof BlockError || error instanceof RangeError) return undefined;
    throw error;
  }
}

/** The same filter has the same name, whoever asks. */
function nameFilter(filter: LogFilter): string {
  return JSON.stringify(filter, (_key, value: unknown) =>
    typeof value === 'bigint' ? value.toString() : value,
  );
}

function findResumption(
  lastEventId: string | undefined,
  now: { epoch: number; shard: number; nextOffset: number },
): Resumption {
  if (lastEventId === undefined) return undefined;
  const last = decodeEntryId(lastEventId);
  const isOurs = last?.epoch === now.epoch && last.shard === now.shard && last.offset < now.nextOffset;
  return isOurs ? { fromOffset: last.offset + 1, sinceMs: last.timeMs } : 'gap';
}

const openTails = declareGauge('logpond_api_open_tails', {
  help: 'Readers of the live tail in this process',
});
