import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { inspect, parseArgs } from 'node:util';
import { runChaos } from './support/chaos-run.ts';
import type { ChaosReport } from './support/chaos-run.ts';
import { findHarms, formatCount, renderFaults } from './support/chaos-table.ts';

/**
 * Breaks a whole installation at random under load, and proves that nothing acknowledged was lost or stored twice.
 * Prints a table in Markdown; exit code 1 when the promise was not kept.
 *
 *   npm run chaos -- --minutes 20 --seed 1
 */
/** Starting, the last recoveries, coming to rest and judging, which takes longer the more there is. */
const JUDGE_SHARE = 1.5;
const EXTRA_MS = 10 * 60_000;

const { values } = parseArgs({
  options: {
    minutes: { type: 'string', default: '20' },
    seed: { type: 'string', default: String(Math.floor(Math.random() * 2 ** 31)) },
  },
});
const minutes = readNumber('minutes', values.minutes);
const seed = readNumber('seed', values.seed);
const command = `npm run chaos -- --minutes ${minutes} --seed ${seed}`;

function readNumber(name: string, text: string): number {
  const number = Number(text);
  if (text !== '' && number >= 0) return number;
  throw new RangeError(`--${name}: expected a number from 0 on, got ${text}`);
}

function say(line: string): void {
  process.stdout.write(`${line}\n`);
}

function report(result: ChaosReport, seconds: number): boolean {
  const { verdict, summaries, spans, crashes } = result;
  const harms = findHarms(verdict.faults, result.ledgerFile);
  say(`\n${renderFaults(summaries, spans, harms)}\n`);
  const { processKills, redisKills, redisPowerLosses, clickHouseKills } = result;
  const statuses = [...result.statuses].map(([status, count]) => `${formatCount(count)} × ${status}`);
  const { acknowledged, lost, duplicated, foreign, changed, extraCopies, deadLettered } = verdict;
  for (const line of [
    `${formatCount(processKills)} process kills; ${formatCount(redisKills)} kills of Redis, ${formatCount(redisPowerLosses)} of them as power loss; ${formatCount(clickHouseKills)} kills of ClickHouse`,
    `${formatCount(acknowledged)} entries acknowledged, ${formatCount(lost)} lost, ${formatCount(duplicated)} duplicated, ${formatCount(changed)} changed, ${formatCount(foreign)} foreign, ${formatCount(deadLettered)} in dead letters`,
    `${formatCount(extraCopies)} further copies of entries that were sent again without a key after an ambiguous answer`,
    `answers (0: no connection): ${statuses.join(', ')}; ${formatCount(result.replayed)} receipts replayed`,
    `at rest ${(result.restMs / 1_000).toFixed(1)} s after the last entry; ${seconds.toFixed(0)} s in all`,
  ])
    say(`- ${line}`);
  for (const fault of verdict.faults) say(`- FAULT: ${fault}`);
  for (const [reason, times] of countReasons(crashes)) say(`- ${times} × ${reason}`);
  const isKept = verdict.faults.length === 0 && lost + duplicated + foreign + changed === 0;
  const isWhole = isKept && crashes.every(({ isStoreAway }) => isStoreAway) && acknowledged > 0;
  say(`\n${isWhole ? 'kept' : 'BROKEN'}; seed ${seed}; again: ${command}`);
  return isWhole;
}

/** Processes that ended by themselves; while a store is out of reach they may. */
function countReasons(crashes: ChaosReport['crashes']): Map<string, number> {
  const counts = new Map<string, number>();
  for (const { reason, isStoreAway } of crashes) {
    const text = `${isStoreAway ? '' : 'CRASH: '}${reason}`;
    counts.set(text, (counts.get(text) ?? 0) + 1);
  }
  return counts;
}

const startedAt = performance.now();
const timeMsMax = minutes * 60_000 * (1 + JUDGE_SHARE) + EXTRA_MS;
const watchdog = setTimeout(() => {
  say(`BROKEN: not done within ${Math.round(timeMsMax / 60_000)} minutes; again: ${command}`);
  process.exit(1);
}, timeMsMax);
say(`seed ${seed}, ${minutes} minutes`);
const directory = mkdtempSync(join(tmpdir(), 'logpond-chaos-run-'));
let isKept = false;
try {
  const result = await runChaos({ seed, seconds: minutes * 60, directory, say });
  isKept = report(result, (performance.now() - startedAt) / 1_000);
} catch (error) {
  say(`\nBROKEN; ${inspect(error)}\nseed ${seed}; again: ${command}`);
}
if (isKept) rmSync(directory, { recursive: true, force: true });
else say(`the ledger, the faults and the logs of all processes are in ${directory}`);
process.exitCode = isKept ? 0 : 1;
clearTimeout(watchdog);
