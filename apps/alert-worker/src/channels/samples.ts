import { setTimeout as delay } from 'node:timers/promises';
import type { SampleEntry } from './notice.ts';

export const SAMPLES_MAX = 5;
/** Entries are counted before they are stored, so they may be found a moment later only. */
const WAIT_MAX_MS = 1_000;
/** For a notification that is late already. */
const WAIT_MIN_MS = 400;
const ASK_AGAIN_MS = 150;

/**
 * Asks for sample entries until `wanted` (at most 5) are there, for at most a second since the notification was queued.
 * A store that fails or is silent costs no more than that: then there are fewer, or none.
 */
export async function gatherSamples(
  ask: () => Promise<readonly SampleEntry[]>,
  wanted: number,
  waitedMs: number,
): Promise<readonly SampleEntry[]> {
  const waitMs = Math.min(WAIT_MAX_MS, Math.max(WAIT_MIN_MS, WAIT_MAX_MS - waitedMs));
  const deadlineMs = performance.now() + waitMs;
  let found: readonly SampleEntry[] = [];
  for (;;) {
    const leftMs = deadlineMs - performance.now();
    if (found.length >= Math.min(wanted, SAMPLES_MAX) || leftMs <= 0) return found;
    const answer = await Promise.race([
      ask().catch(() => undefined),
      delay(leftMs, undefined, { ref: false }),
    ]);
    // A store that is away is not asked again for this one.
    if (answer === undefined) return found;
    found = answer.length >= found.length ? answer : found;
    if (found.length < Math.min(wanted, SAMPLES_MAX)) {
      await delay(Math.max(0, Math.min(ASK_AGAIN_MS, deadlineMs - performance.now())));
    }
  }
}
