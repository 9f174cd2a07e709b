import { declareCounter, declareGauge } from '@logpond/runtime/metrics';
import { ApiError } from '@logpond/schema/api-error';
import { jitterRetryAfter } from './retry-after.ts';

/** Bytes of request bodies, raw and inflated, that may be in memory at once. */
const IN_FLIGHT_BYTES_MAX = 256 * 1024 * 1024;
/** The part of it for routes without credentials: strangers must not be able to take all of it. */
const STRANGERS_BYTES_MAX = 16 * 1024 * 1024;
/** Bodies up to this size are gathered in a recycled buffer; larger ones get their own. */
const POOLED_BYTES_MAX = 1024 * 1024;
const POOLED_BUFFERS_MAX = 16;

/** The memory of one request's body. */
export type BodyLease = {
  /** @throws {ApiError} UNAVAILABLE when all bodies together would take too much. */
  reserve: (bytes: number) => void;
  /** The chunks as one buffer. */
  gather: (chunks: readonly Buffer[], bytes: number) => Buffer;
  /**
   * Ends the lease. With `canRecycle` the caller says that nothing refers to the bytes any more; without,
   * the buffer is left to the garbage collector, which is always safe.
   */
  release: (canRecycle: boolean) => void;
};

/**
 * Bounds what all bodies together may take, and recycles the buffers of ordinary ones: a fresh 300 KB
 * allocation per batch costs page faults that a recycled one does not.
 */
export class BodyMemory {
  readonly #free: Buffer[] = [];
  #inFlightBytes = 0;
  #strangersBytes = 0;

  /** @param isStranger nobody has said who sends the body. */
  lease(isStranger = false): BodyLease {
    let reserved = 0;
    let pooled: Buffer | undefined;
    return {
      reserve: (bytes) => {
        const isOver = isStranger && this.#strangersBytes + bytes > STRANGERS_BYTES_MAX;
        if (isOver || this.#inFlightBytes + bytes > IN_FLIGHT_BYTES_MAX) {
          refusedTotal.inc();
          throw new ApiError('UNAVAILABLE', {
            public: 'too many large bodies at once; send again',
            retryAfterS: jitterRetryAfter(1.5),
          });
        }
        reserved += bytes;
        this.#inFlightBytes += bytes;
        if (isStranger) this.#strangersBytes += bytes;
        inFlightGauge.set(this.#inFlightBytes);
      },
      gather: (chunks, bytes) => {
        if (chunks.length === 1 && chunks[0] !== undefined) return chunks[0];
        if (bytes > POOLED_BYTES_MAX) return Buffer.concat(chunks, bytes);
        pooled = this.#free.pop() ?? Buffer.allocUnsafeSlow(POOLED_BYTES_MAX);
        let end = 0;
        for (const chunk of chunks) end += chunk.copy(pooled, end);
        return pooled.subarray(0, end);
      },
      release: (canRecycle) => {
        this.#inFlightBytes -= reserved;
        if (isStranger) this.#strangersBytes -= reserved;
        reserved = 0;
        inFlightGauge.set(this.#inFlightBytes);
        if (canRecycle && pooled !== undefined && this.#free.length < POOLED_BUFFERS_MAX)
          this.#free.push(pooled);
        pooled = undefined;
      },
    };
  }
}

const inFlightGauge = declareGauge('logpond_api_body_memory_bytes', { help: 'Request bodies in memory.' });
const refusedTotal = declareCounter('logpond_api_body_memory_refused_total', {
  help: 'Requests refused because bodies in memory reached their bound.',
});
