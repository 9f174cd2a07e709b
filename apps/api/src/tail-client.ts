import { declareCounter } from '@logpond/runtime/metrics';
import { formatTimestampNs } from '@logpond/schema/timestamp';

/** What may wait for one slow reader; beyond it the oldest entries are dropped and the reader is told. */
const QUEUE_BYTES_MAX = 4 * 1024 * 1024;
/** Notices that may wait; beyond it they become a single one. */
const NOTICES_MAX = 16;

/** Events that are ready to be sent, with what has to be told when they are dropped instead. */
export type TailChunk = { bytes: Uint8Array; entries: number; firstTimeNs: bigint; lastTimeNs: bigint };

type Gap = { from: string | null; to: string | null; dropped: number | null };

const encoder = new TextEncoder();
const RETRY = encoder.encode('retry: 2000\n\n');
const LIVE = encoder.encode(': live\n\n');
const HEARTBEAT = encoder.encode(': heartbeat\n\n');

/** Renders the event that says which entries a reader did not get; null is what is not known. */
function renderGap(gap: Gap): Uint8Array {
  return encoder.encode(`event: gap\ndata: ${JSON.stringify(gap)}\n\n`);
}

/** The open end of one reader: a bounded queue between the hub and the reader's socket. */
export class TailClient {
  /** Server-Sent Events; ends when the client is closed. */
  readonly stream: ReadableStream<Uint8Array>;
  readonly #queue: TailChunk[] = [];
  readonly #notices: Uint8Array[] = [];
  #queuedBytes = 0;
  #dropped: { entries: number; fromNs: bigint; toNs: bigint } | undefined;
  #wake: (() => void) | undefined;
  #onDrain: (() => void) | undefined;
  #closed = false;
  readonly #onClose: () => void;

  /** @param onClose called once, when the reader leaves or the stream is ended. */
  constructor(onClose: () => void) {
    this.#onClose = onClose;
    this.stream = new ReadableStream<Uint8Array>(
      {
        pull: async (controller) => {
          const bytes = await this.#next();
          if (bytes === undefined) controller.close();
          else controller.enqueue(bytes);
        },
        cancel: () => this.close(),
      },
      { highWaterMark: 0 },
    );
  }

  /** Sends the first bytes: from now on nothing that is admitted is missed without a word. */
  begin(): void {
    this.#notices.push(RETRY);
    this.#wake?.();
  }

  /** Says, once a replay has gone out, that what follows was admitted after this reader came. */
  markLive(): void {
    this.#notices.push(LIVE);
    this.#wake?.();
  }

  /** Queues events; drops the oldest ones when the reader is too slow. */
  push(chunk: TailChunk): void {
    if (this.#closed) return;
    this.#queue.push(chunk);
    this.#queuedBytes += chunk.bytes.length;
    while (this.#queuedBytes > QUEUE_BYTES_MAX && this.#queue.length > 1) this.#dropOldest();
    this.#wake?.();
  }

  /** Waits until everything queued went out, so that a replay is as fast as its reader. */
  async drained(): Promise<void> {
    while (!this.#closed && this.#queue.length > 0) {
      await new Promise<void>((resolve) => {
        this.#onDrain = resolve;
      });
    }
  }

  /** Tells the reader of entries that nobody can give it any more. */
  pushGap(gap: Gap): void {
    if (this.#notices.length < NOTICES_MAX) this.#notices.push(renderGap(gap));
    else this.#notices.splice(0, Infinity, renderGap({ from: null, to: null, dropped: null }));
    this.#wake?.();
  }

  /** Keeps proxies from closing a quiet connection; left out when something else is waiting anyway. */
  pushHeartbeat(): void {
    if (this.#queue.length === 0 && this.#notices.length === 0) this.#notices.push(HEARTBEAT);
    this.#wake?.();
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#wake?.();
    this.#onDrain?.();
    this.#onClose();
  }

  get isClosed(): boolean {
    return this.#closed;
  }

  #dropOldest(): void {
    const chunk = this.#queue.shift();
    if (chunk === undefined) return;
    this.#queuedBytes -= chunk.bytes.length;
    droppedEntries.inc({ reason: 'slow_reader' }, chunk.entries);
    this.#dropped = {
      entries: (this.#dropped?.entries ?? 0) + chunk.entries,
      fromNs: this.#dropped?.fromNs ?? chunk.firstTimeNs,
      toNs: chunk.lastTimeNs,
    };
  }

  async #next(): Promise<Uint8Array | undefined> {
    while (!this.#closed) {
      const notice = this.#notices.shift();
      if (notice !== undefined) return notice;
      if (this.#dropped !== undefined) {
        const { entries, fromNs, toNs } = this.#dropped;
        this.#dropped = undefined;
        return renderGap({ from: formatTimestampNs(fromNs), to: formatTimestampNs(toNs), dropped: entries });
      }
      const chunk = this.#queue.shift();
      if (chunk !== undefined) {
        this.#queuedBytes -= chunk.bytes.length;
        if (this.#queue.length === 0) this.#onDrain?.();
        return chunk.bytes;
      }
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
      this.#wake = undefined;
    }
    return undefined;
  }
}

const droppedEntries = declareCounter('logpond_api_tail_dropped_entries_total', {
  help: 'Entries that a reader of the live tail was not sent; it was told so',
  labels: ['reason'],
});
