import type { DeliveryContext } from './deliver-batch.ts';
import { deliverBatch } from './deliver-batch.ts';
import type { OutgoingEntry } from './outgoing-entry.ts';

export type BatchBounds = { rowsMax: number; bytesMax: number; lingerMs: number; inFlightMax: number };

/** Batches of 1,000 entries, 4 MB or 1 s, whichever comes first. */
export const BATCH_BOUNDS = { rowsMax: 1000, bytesMax: 4 * 1024 * 1024, lingerMs: 1000 } as const;

/**
 * Gathers entries to batches and keeps at most `inFlightMax` of them on their way; `add` waits while
 * all are, which is the backpressure on the input. Memory is bounded by inFlightMax + 2 batches. After
 * a delivery has failed for good every call throws its error.
 */
export class BatchSender {
  readonly #context: DeliveryContext;
  readonly #bounds: BatchBounds;
  readonly #inFlight = new Set<Promise<void>>();
  #entries: OutgoingEntry[] = [];
  #bytes = 0;
  #timer: NodeJS.Timeout | undefined;
  #failure: { error: unknown } | undefined;

  constructor(context: DeliveryContext, bounds: BatchBounds) {
    this.#context = context;
    this.#bounds = bounds;
  }

  /** Takes an entry; `bytes` is about what it takes as JSON. */
  async add(entry: OutgoingEntry, bytes: number): Promise<void> {
    if (this.#entries.length > 0 && this.#bytes + bytes > this.#bounds.bytesMax) await this.#dispatch();
    this.#throwFailure();
    this.#entries.push(entry);
    this.#bytes += bytes;
    if (this.#entries.length >= this.#bounds.rowsMax) await this.#dispatch();
    else this.#timer ??= setTimeout(() => this.#dispatchLate(), this.#bounds.lingerMs);
  }

  /** Sends what is in hand and waits for everything on its way. */
  async drain(): Promise<void> {
    await this.#dispatch();
    while (this.#inFlight.size > 0) await Promise.race(this.#inFlight);
    this.#throwFailure();
  }

  /** The age limit of a batch: with all slots taken it waits for the next slot, or for being full. */
  #dispatchLate(): void {
    this.#timer = undefined;
    if (this.#inFlight.size < this.#bounds.inFlightMax) this.#start();
    else this.#timer = setTimeout(() => this.#dispatchLate(), this.#bounds.lingerMs / 4);
  }

  async #dispatch(): Promise<void> {
    while (this.#inFlight.size >= this.#bounds.inFlightMax) await Promise.race(this.#inFlight);
    this.#throwFailure();
    this.#start();
  }

  #start(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const entries = this.#entries;
    this.#entries = [];
    this.#bytes = 0;
    if (entries.length === 0 || this.#failure) return;
    const delivery = deliverBatch(entries, this.#context)
      .catch((error: unknown) => {
        this.#failure ??= { error };
      })
      .finally(() => this.#inFlight.delete(delivery));
    this.#inFlight.add(delivery);
  }

  #throwFailure(): void {
    if (this.#failure) throw this.#failure.error;
  }
}
