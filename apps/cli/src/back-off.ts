const FIRST_DELAY_MS = 200;
const DELAY_MAX_MS = 15_000;
const RETRY_AFTER_MAX_MS = 300_000;

/**
 * Delay in ms before the next try. `attempt` counts from 0. Without Retry-After: 200 ms doubled each
 * time up to 15 s, of which the upper half is random. With it: never earlier than the server asked
 * (at most 5 min), plus up to 20 % so that many senders do not come back together.
 */
export function nextDelayMs(
  attempt: number,
  retryAfterMs: number | undefined,
  random: () => number = Math.random,
): number {
  if (retryAfterMs !== undefined) {
    const asked = Math.min(Math.max(retryAfterMs, 0), RETRY_AFTER_MAX_MS);
    return Math.ceil(Math.max(asked, FIRST_DELAY_MS) * (1 + 0.2 * random()));
  }
  const full = Math.min(FIRST_DELAY_MS * 2 ** Math.min(attempt, 30), DELAY_MAX_MS);
  return Math.ceil(full * (0.5 + 0.5 * random()));
}

/** Reads a Retry-After header (RFC 9110 §10.2.3: seconds or an HTTP date) as ms from now; undefined when absent or malformed. */
export function parseRetryAfterMs(header: string | null, nowMs: number): number | undefined {
  if (header === null) return undefined;
  if (/^\d{1,9}$/.test(header.trim())) return Number(header.trim()) * 1000;
  const dateMs = Date.parse(header);
  return Number.isNaN(dateMs) ? undefined : Math.max(0, dateMs - nowMs);
}

/** Waits `delayMs`; rejects with the signal's reason when it is aborted meanwhile. */
export async function pause(delayMs: number, signal?: AbortSignal): Promise<void> {
  signal?.throwIfAborted();
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const timer = setTimeout(resolve, delayMs);
  const onAbort = (): void => reject(signal?.reason as Error);
  signal?.addEventListener('abort', onAbort, { once: true });
  try {
    await promise;
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener('abort', onAbort);
  }
}
