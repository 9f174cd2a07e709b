const JITTER_SHARE = 0.2;

/**
 * Whole seconds for Retry-After, at least 1: `seconds` ± 20 % at random, so that clients that were refused at the
 * same moment do not come back at the same moment. Between two whole seconds the choice is random too.
 */
export function jitterRetryAfter(seconds: number, random: () => number = Math.random): number {
  const jittered = seconds * (1 - JITTER_SHARE + 2 * JITTER_SHARE * random());
  return Math.max(1, Math.floor(jittered + random()));
}
