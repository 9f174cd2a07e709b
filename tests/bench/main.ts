import { writeFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { Installation } from '../system/support/installation.ts';
import { runFreshness } from './freshness.ts';
import { runIdle } from './idle.ts';
import { runIngest } from './ingest.ts';
import { runLowLoad } from './low-load.ts';
import { readVersions } from './report.ts';
import type { BenchOptions, Figures } from './report.ts';

/**
 * Measures the whole product, which it starts itself in a directory of its own; other programs on the machine
 * disturb it. Figures are processor time from /proc, so Linux only.
 *
 *   npm run bench -- idle | low-load | freshness | ingest  [--seconds n] [--rounds n] [--entries n] [--seed n] [--json file]
 */
const PARTS: Readonly<
  Record<string, (installation: Installation, options: BenchOptions) => Promise<Figures>>
> = {
  idle: runIdle,
  'low-load': runLowLoad,
  freshness: runFreshness,
  ingest: runIngest,
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
if (runPart === undefined) {
  console.error(`expected one of ${Object.keys(PARTS).join(', ')}, got "${name}"`);
  process.exit(2);
}
const options: BenchOptions = {
  seed: readCount('seed', values.seed) ?? 1,
  seconds: readCount('seconds', values.seconds),
  rounds: readCount('rounds', values.rounds),
  entries: readCount('entries', values.entries),
};

const startedAt = new Date();
let figures: Figures;
let versions: Figures;
{
  await using installation = await Installation.start();
  figures = await runPart(installation, options);
  versions = await readVersions(installation);
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
