/** A process that lived this long was well: its next death starts the count anew. */
export const HEALTHY_LIFE_MS = 5_000;

const FIRST_DELAY_MS = 100;
const DELAY_MS_MAX = 10_000;

/** How long to wait before a process that died at once `quickDeaths` times in a row is started again, in ms. */
export function restartDelayMs(quickDeaths: number): number {
  return Math.min(FIRST_DELAY_MS * 2 ** Math.max(0, quickDeaths - 1), DELAY_MS_MAX);
}
