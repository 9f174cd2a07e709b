import { writeFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { Installation } from '../system/support/installation.ts';
import { runAlertMatching } from './alert-matching.ts';
import { runAlerts } from './alerts.ts';
import { runFlood } from './flood.ts';
import { runFreshness } from './freshness.ts';
import { runIdle } from './idle.ts';
import { runIngest } from './ingest.ts';
import { runLowLoad } from './low-load.ts';
import { readMachine, readVersions } from './report.ts';
import type { BenchOptions, Figures } from './report.ts';

/**
 * Measures the whole product, which it starts itself in a directory of its own; other programs on the machine
 * disturb it. Figures are processor time from /proc, so Linux only.
 *
 *   npm run bench -- idle | low-load | freshness | ingest | flood | alerts | alert-matching  [--seconds n] [--rounds n] [--entries n] [--seed n] [--json file]
 */
const PARTS: Readonly<
  Record<string, (installation: Installation, options: BenchOptions) => Promise<Figures>>
> = {
  idle: runIdle,
  'low-load': runLowLoad,
  freshness: runFreshness,
  ingest: runIngest,
};
/** Parts that break what they measure start its processes one by one, or need none. */
const OWN_RIG_PARTS: Readonly<Record<string, (options: BenchOptions) => Promise<Figures>>> = {
  flood: runFlood,
  alerts: runAlerts,
  'alert-matching': runAlertMatching,
};

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    seconds: { type: 'string' },
    rounds: { type: 'string' },
    entries: { type: 'string' },
    seed: { type: 'string', default: '1' },
    json: { type: 'string' },
  },
});
const [name = ''] = positionals;
const runPart = PARTS[name];
const runOwnRig = OWN_RIG_PARTS[name];
const options: BenchOptions = {
  seed: readCount('seed', values.seed) ?? 1,
  seconds: readCount('seconds', values.seconds),
  rounds: readCount('rounds', values.rounds),
  entries: readCount('entries', values.entries),
};

const startedAt = new Date();
let figures: Figures;
let versions: Figures;
if (runPart !== undefined) {
  await using installation = await Installation.start();
  figures = await runPart(installation, options);
  versions = await readVersions(installation);
} else if (runOwnRig !== undefined) {
  figures = await runOwnRig(options);
  versions = readMachine();
} else {
  console.error(`expected one of ${Object.keys({ ...PARTS, ...OWN_RIG_PARTS }).join(', ')}, got "${name}"`);
  process.exit(2);
}
const result = { part: name, startedAt, options, versions, figures };
console.log(`\n${JSON.stringify({ seed: options.seed, ...versions })}`);
if (values.json !== undefined) writeFileSync(values.json, `${JSON.stringify(result, undefined, 2)}\n`);

function readCount(option: string, text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  const count = Number(text);
  if (Number.isInteger(count) && count >= 1) return count;
  console.error(`--${option}: expected a whole number from 1 on, got ${text}`);
  process.exit(2);
}
