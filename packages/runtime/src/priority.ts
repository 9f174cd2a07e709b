import { setPriority } from 'node:os';

/**
 * A step below the processes that somebody waits for: at nice 5 a busy core gives this process about a quarter of it
 * while one at 0 wants it all, and everything when nobody does.
 */
const BACKGROUND_NICENESS = 5;

/**
 * Lets the processes that answer requests go first on this machine's cores. What this process does may wait for
 * milliseconds, an answer should not (docs/decisions/0012 has the measurement).
 */
export function yieldToRequests(): void {
  setPriority(BACKGROUND_NICENESS);
}
