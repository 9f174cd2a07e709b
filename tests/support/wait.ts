import { setTimeout as delay } from 'node:timers/promises';

const POLL_MS = 20;

/**
 * Waits until `probe` gives a value other than undefined or false; what it throws counts as not yet.
 *
 * @throws {Error} naming what was waited for, with the last failure, after `timeoutMs`.
 */
export async function waitFor<T>(
  what: string,
  probe: () => Promise<T | undefined | false> | T | undefined | false,
  timeoutMs = 20_000,
): Promise<T> {
  const deadline = performance.now() + timeoutMs;
  let last: unknown;
  while (performance.now() < deadline) {
    try {
      const value = await probe();
      if (value !== undefined && value !== false) return value;
      last = undefined;
    } catch (error) {
      last = error;
    }
    await delay(POLL_MS);
  }
  throw new Error(`waited ${timeoutMs} ms for ${what}`, { cause: last });
}
