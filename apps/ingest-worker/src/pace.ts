import type { Overload } from '@logpond/db/clickhouse-error';
import type { ReadLimits } from '@logpond/db/log-cursor';

/** The normal case, as the settings say. */
export type FlushSettings = { intervalMs: number; rowsMax: number; bytesMax: number };

/**
 * Inflated bytes of one insert at most (a block more). Repetitive entries shrink 200-fold in the stream, so the
 * stored bytes alone let a plan grow to gigabytes: a worker that died of one would die of it again for ever.
 */
const RAW_BYTES_MAX = 128 * 1024 * 1024;
/** An insert has a fixed price, so a shard rests after one for this many times as long as it took … */
const REST_FACTOR = 10;
/** … but while few entries come, not for longer than this: somebody may be waiting for each of them. */
const FEW_ROWS = 1_000;
const REST_FEW_MS = 400;

/** An insert that takes longer is too large for this server. */
const SLOW_INSERT_MS = 10_000;
const ROWS_MIN = 1_000;
/** Fewer, larger inserts when merges lag behind: one every 10 s at most often, of up to so many rows. */
const SLOWED_INTERVAL_MS = 10_000;
const SLOWED_ROWS_MAX = 1_000_000;
/** How much nearer to normal each insert that went well brings the pace. */
const RECOVERY = 1.25;

/**
 * How large the inserts of one shard are and how often they come: as the settings say, until ClickHouse is
 * overloaded.
 *
 * `parts`: the pause between inserts doubles from 1 s up to 10 s, and a plan may hold twice, at most four times, the
 * rows. `busy`: only the pause grows. `memory`, or an insert that took more than 10 s: half the rows, at least
 * 1,000. Each quick success is a step of a quarter back to normal.
 */
export class Pace {
  readonly #flush: FlushSettings;
  #rowsMax: number;
  /** 0 in the normal case. */
  #slowedMs = 0;

  constructor(flush: FlushSettings) {
    this.#flush = flush;
    this.#rowsMax = flush.rowsMax;
  }

  get limits(): ReadLimits {
    return { rowsMax: this.#rowsMax, bytesMax: this.#flush.bytesMax, rawBytesMax: RAW_BYTES_MAX };
  }

  /** Tells of an insert that went well and how long it took. */
  noteInsert(tookMs: number): void {
    const { rowsMax } = this.#flush;
    this.#slowedMs = this.#slowedMs < 1_000 ? 0 : this.#slowedMs / RECOVERY;
    if (tookMs > SLOW_INSERT_MS) this.#halveRows();
    else if (this.#rowsMax > rowsMax) this.#rowsMax = Math.max(rowsMax, Math.floor(this.#rowsMax / RECOVERY));
    else this.#rowsMax = Math.min(rowsMax, Math.ceil(this.#rowsMax * RECOVERY));
  }

  /** Tells of an insert that failed because the server is overloaded. */
  noteOverload(overload: Overload): void {
    if (overload === 'memory') {
      this.#halveRows();
      return;
    }
    this.#slowedMs = Math.min(SLOWED_INTERVAL_MS, Math.max(1_000, this.#slowedMs * 2));
    if (overload === 'busy') return;
    const { rowsMax } = this.#flush;
    const largest = Math.max(rowsMax, Math.min(SLOWED_ROWS_MAX, rowsMax * 4));
    this.#rowsMax = Math.min(largest, Math.max(this.#rowsMax, rowsMax) * 2);
  }

  /** How long to rest from the start of a flush that took `costMs` before the next one. `isFull`: more is waiting. */
  restMs(flush: { rows: number; costMs: number; isFull: boolean }): number {
    const { intervalMs } = this.#flush;
    if (flush.isFull) return this.#slowedMs;
    const longest = flush.rows < FEW_ROWS ? Math.min(REST_FEW_MS, intervalMs) : intervalMs;
    return Math.max(this.#slowedMs, Math.min(flush.costMs * REST_FACTOR, longest));
  }

  #halveRows(): void {
    this.#rowsMax = Math.min(this.#rowsMax, Math.max(ROWS_MIN, Math.floor(this.#rowsMax / 2)));
  }
}
