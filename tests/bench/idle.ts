import { setTimeout as delay } from 'node:timers/promises';
import type { Installation } from '../system/support/installation.ts';
import { CostMeter } from './process-cost.ts';
import { reportCosts } from './report.ts';
import type { BenchOptions, Figures } from './report.ts';

/** What starting leaves to do (first merges, compilation) is over by then. */
const SETTLE_MS = 15_000;
const SECONDS = 60;

/** Processor and memory of an installation that nobody uses. */
export async function runIdle(installation: Installation, options: BenchOptions): Promise<Figures> {
  await delay(SETTLE_MS);
  const meter = new CostMeter(installation);
  await delay((options.seconds ?? SECONDS) * 1_000);
  const { costs, seconds } = meter.read();
  return reportCosts('idle installation', costs, seconds);
}
