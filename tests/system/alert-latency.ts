import { parseArgs } from 'node:util';
import { AlertRig } from './support/alert-rig.ts';
import { measureLatency } from './support/alert-latency-run.ts';
import { renderTable } from './support/chaos-table.ts';

/**
 * How long it takes from an entry that makes a rule cross to the mail in the mail server, for many different rules
 * under a steady load. Exit code 1 when the 99th percentile, from the sending of the entry on, is above 2 s, or when
 * the load was not taken whole.
 *
 *   npm run alert-latency -- --crossings 200 --rate 2000
 */
const SHARDS = 4;
const P99_MS_MAX = 2_000;
const TIME_MS_MAX = 20 * 60_000;

const { values } = parseArgs({
  options: {
    crossings: { type: 'string', default: '200' },
    /** Entries a second beside. */
    rate: { type: 'string', default: '2000' },
    /** Crossings a second. */
    pace: { type: 'string', default: '4' },
  },
});

function readNumber(name: string, text: string): number {
  const number = Number(text);
  if (!(number > 0)) throw new RangeError(`--${name}: expected a number above 0, got ${text}`);
  return number;
}

function say(line: string): void {
  process.stdout.write(`${line}\n`);
}

/** By the nearest rank. */
function quantile(valuesMs: readonly number[], share: number): number {
  const sorted = valuesMs.toSorted((a, b) => a - b);
  return sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)] ?? Number.NaN;
}

function describe(name: string, valuesMs: readonly number[]): string[] {
  const figures = [quantile(valuesMs, 0.5), quantile(valuesMs, 0.99), Math.max(...valuesMs)];
  return [name, String(valuesMs.length), ...figures.map((ms) => ms.toFixed(0))];
}

async function run(): Promise<boolean> {
  const crossings = readNumber('crossings', values.crossings);
  const entriesPerSecond = readNumber('rate', values.rate);
  await using own = await AlertRig.open({ shards: SHARDS });
  own.startWorker();
  const tenants = await own.createTenants(1);
  const crossingsPerSecond = readNumber('pace', values.pace);
  const options = { tenants, crossings, crossingsPerSecond, entriesPerSecond };
  const { fromSendMs, fromAnswerMs, load } = await measureLatency(own, options);
  const rows = [
    describe('from the sending of the entry', fromSendMs),
    describe('from its 200', fromAnswerMs),
  ];
  say(renderTable(['crossing to mail', 'count', 'p50, ms', 'p99, ms', 'max, ms'], rows));
  say(
    `${crossings} rules in ${tenants.length} projects, ${entriesPerSecond} entries/s beside: ${load.acknowledged} of ${load.sent} acknowledged; other answers: ${JSON.stringify([...load.refused])}`,
  );
  const isFast = quantile(fromSendMs, 0.99) <= P99_MS_MAX;
  const isWhole = load.acknowledged === load.sent;
  if (!isFast) say(`BROKEN: p99 is above ${P99_MS_MAX} ms`);
  if (!isWhole) say('BROKEN: not all of the load was acknowledged');
  return isFast && isWhole;
}

const watchdog = setTimeout(() => {
  say(`not done within ${TIME_MS_MAX / 60_000} minutes`);
  process.exit(1);
}, TIME_MS_MAX);
process.exitCode = (await run()) ? 0 : 1;
clearTimeout(watchdog);
