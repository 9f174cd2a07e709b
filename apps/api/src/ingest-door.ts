import { declareCounter, declareGauge } from '@logpond/runtime/metrics';
import { ApiError } from '@logpond/schema/api-error';
import { jitterRetryAfter } from './retry-after.ts';

/** Bodies that wait for their answer, in this process; beyond it Redis is not keeping up. */
const WAITING_BYTES_MAX = 128 * 1024 * 1024;
/** What all that wait may take together before one of them can be told to wait. */
const SHARED_BYTES = WAITING_BYTES_MAX / 2;
/** What a project may always have waiting. */
const OWN_BYTES_MIN = 8 * 1024 * 1024;
/** A crowded project is refused for this long; then one of its requests may see whether there is room. */
const REFUSAL_MS_MAX = 1_000;
/** Crowded projects that are remembered; the oldest news is forgotten first. */
const CROWDED_MAX = 10_000;

type Refusal = { untilMs: number; retryAfterS: number };

/**
 * Who may come in with a batch. A project is turned away with 429 when the streams hold more of it than its fair
 * share (the stream says so with each answer), or when too much of it waits in this process. What waits of all
 * together is bounded too; beyond that everybody gets 503.
 */
export class IngestDoor {
  readonly #nowMs: () => number;
  readonly #crowded = new Map<string, Refusal>();
  readonly #waiting = new Map<string, number>();
  #waitingBytes = 0;

  /** @param nowMs a clock that never jumps. */
  constructor(nowMs: () => number = () => performance.now()) {
    this.#nowMs = nowMs;
  }

  /**
   * Before a request's body is read.
   *
   * @throws {ApiError} BACKPRESSURE.
   */
  check(projectId: string): void {
    this.#refuseCrowded(projectId);
    this.#refuseAboveShare(projectId, 1);
  }

  /**
   * Takes a body in; `leave` must follow.
   *
   * @throws {ApiError} BACKPRESSURE, UNAVAILABLE: it is not in.
   */
  enter(projectId: string, bytes: number): void {
    this.#refuseAboveShare(projectId, bytes);
    if (this.#waitingBytes + bytes > WAITING_BYTES_MAX) {
      refusedBatches.inc({ reason: 'waiting_bytes' });
      throw new ApiError('UNAVAILABLE', {
        public: 'too much waits to be written; send again',
        retryAfterS: jitterRetryAfter(1.5),
      });
    }
    this.#waiting.set(projectId, (this.#waiting.get(projectId) ?? 0) + bytes);
    this.#setWaitingBytes(this.#waitingBytes + bytes);
  }

  /** The body is answered. */
  leave(projectId: string, bytes: number): void {
    const left = (this.#waiting.get(projectId) ?? 0) - bytes;
    if (left > 0) this.#waiting.set(projectId, left);
    else this.#waiting.delete(projectId);
    this.#setWaitingBytes(this.#waitingBytes - bytes);
  }

  /** What the stream said of the projects of one block: `crowded` are above their share, the others are not. */
  learn(projectIds: Iterable<string>, crowded: ReadonlyMap<string, number>): void {
    if (crowded.size === 0 && this.#crowded.size === 0) return;
    for (const projectId of projectIds) this.#crowded.delete(projectId);
    for (const [projectId, retryAfterS] of crowded) {
      const untilMs = this.#nowMs() + Math.min(retryAfterS * 1_000, REFUSAL_MS_MAX);
      this.#crowded.set(projectId, { untilMs, retryAfterS });
    }
    for (const [oldest] of this.#crowded) {
      if (this.#crowded.size <= CROWDED_MAX) return;
      this.#crowded.delete(oldest);
    }
  }

  #refuseCrowded(projectId: string): void {
    const refusal = this.#crowded.get(projectId);
    if (refusal === undefined) return;
    const nowMs = this.#nowMs();
    if (nowMs >= refusal.untilMs) {
      // This one may see; the others stay outside until it is answered, or gave no answer for as long again.
      refusal.untilMs = nowMs + REFUSAL_MS_MAX;
      return;
    }
    refusedBatches.inc({ reason: 'fair_share' });
    throw new ApiError('BACKPRESSURE', {
      public: "this project's entries that wait to be stored are above its fair share; send again later",
      retryAfterS: jitterRetryAfter(refusal.retryAfterS),
    });
  }

  /** Half of all is shared among those that wait, so that alone a project is hardly bounded (security.md §2). */
  #refuseAboveShare(projectId: string, bytes: number): void {
    const own = this.#waiting.get(projectId);
    if (own === undefined) return;
    if (own + bytes <= Math.max(OWN_BYTES_MIN, SHARED_BYTES / this.#waiting.size)) return;
    refusedBatches.inc({ reason: 'waiting_share' });
    throw new ApiError('BACKPRESSURE', {
      public: 'too much of this project waits to be written; wait for the answers, then send again',
      retryAfterS: jitterRetryAfter(1),
    });
  }

  #setWaitingBytes(bytes: number): void {
    this.#waitingBytes = bytes;
    waitingBytes.set(bytes);
  }
}

/** Counted here and where a batch is read and stored: nothing of the batch is stored. */
export const refusedBatches = declareCounter('logpond_api_refused_batches_total', {
  help: 'Batches of which nothing was stored',
  labels: ['reason'],
});
const waitingBytes = declareGauge('logpond_api_waiting_bytes', { help: 'Bodies that wait for their answer' });
