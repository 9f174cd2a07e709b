import { parseArgs } from 'node:util';
import { judgeCrowd, runCrowd } from './support/alert-crowd.ts';
import { judgeAlerts } from './support/alert-judge.ts';
import { comparePreviews } from './support/alert-preview-run.ts';
import { AlertRig } from './support/alert-rig.ts';
import { createRandom } from './support/random.ts';

/**
 * The two large proofs of alerts. `preview`: for random rules on a simulated day of random entries, what the preview
 * says is what the worker fired. `crowd`: many rules in many projects, half of them made and deleted while entries
 * flow, each counted exactly. Exit code 1 when that does not hold.
 *
 *   npm run alert-proofs -- preview --rules 500 --seed 1
 *   npm run alert-proofs -- crowd --rules 1000 --projects 100 --seed 1
 */
const SHARDS = 4;
const INSTANTS = 2_000;
const REST_MS_MAX = 300_000;
const TIME_MS_MAX = 30 * 60_000;

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    rules: { type: 'string' },
    projects: { type: 'string', default: '100' },
    seed: { type: 'string', default: '1' },
  },
});

function say(line: string): void {
  process.stdout.write(`${line}\n`);
}

async function provePreview(own: AlertRig, rules: number, seed: number): Promise<boolean> {
  const tenants = await own.createTenants(1);
  const options = { tenants, rules, instants: INSTANTS, random: createRandom(seed) };
  const { different, verdict, ...counts } = await comparePreviews(own, options);
  say(JSON.stringify({ ...counts, different: different.length, verdict }));
  for (const difference of different.slice(0, 10)) say(difference);
  return different.length === 0 && verdict.faults.length === 0 && counts.firings > rules;
}

async function proveCrowd(own: AlertRig, rules: number, seed: number): Promise<boolean> {
  own.startWorker();
  const projects = Number(values.projects);
  const tenants = await own.createTenants(Math.ceil(projects / SHARDS));
  const known = await runCrowd(own, { tenants, rulesPerTenant: Math.ceil(rules / tenants.length), seed });
  await own.waitForRest(REST_MS_MAX);
  const crowd = await judgeCrowd(own, known);
  const verdict = await judgeAlerts({ rig: own.rig, api: own.alerts, tenants });
  say(JSON.stringify({ projects: tenants.length, ...crowd }));
  say(JSON.stringify(verdict));
  return crowd.faults.length === 0 && verdict.faults.length === 0 && crowd.fired > rules / 3;
}

async function run(): Promise<boolean> {
  const startedAt = performance.now();
  const [part] = positionals;
  if (part !== 'preview' && part !== 'crowd') throw new RangeError(`expected preview or crowd, got ${part}`);
  const seed = Number(values.seed);
  await using own = await AlertRig.open({ shards: SHARDS });
  const isKept =
    part === 'preview'
      ? await provePreview(own, Number(values.rules ?? 500), seed)
      : await proveCrowd(own, Number(values.rules ?? 1_000), seed);
  say(`seed ${seed}, ${((performance.now() - startedAt) / 1_000).toFixed(0)} s`);
  say(isKept ? 'kept' : 'BROKEN');
  return isKept;
}

const watchdog = setTimeout(() => {
  say(`not done within ${TIME_MS_MAX / 60_000} minutes`);
  process.exit(1);
}, TIME_MS_MAX);
process.exitCode = (await run()) ? 0 : 1;
clearTimeout(watchdog);
