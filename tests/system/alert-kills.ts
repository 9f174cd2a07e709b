import { parseArgs } from 'node:util';
import { waitFor } from '../support/wait.ts';
import { judgeAlerts } from './support/alert-judge.ts';
import { NOTIFIER_POINTS, planDeaths, runDeaths, WORKER_POINTS } from './support/alert-killing.ts';
import { AlertRig } from './support/alert-rig.ts';
import { renderTable } from './support/chaos-table.ts';
import { createRandom } from './support/random.ts';

/**
 * Kills the alert worker at each of its steps, and its notifier at each of its own, many times in random order while
 * entries flow, and judges: no crossing lost, none twice, each told to its recipient, mails repeated only under their
 * Message-ID. Exit code 1 when that does not hold.
 *
 *   npm run alert-kills -- --times 30 --seed 1
 */
const SHARDS = 2;
const MAIL_MS_MAX = 120_000;
const REST_MS_MAX = 120_000;

const { values } = parseArgs({
  options: { times: { type: 'string', default: '30' }, seed: { type: 'string', default: '1' } },
});
const times = Number(values.times);
if (!(Number.isInteger(times) && times > 0))
  throw new RangeError(`--times: expected a number from 1 on, got ${values.times}`);

function say(line: string): void {
  process.stdout.write(`${line}\n`);
}

async function run(): Promise<boolean> {
  const startedAt = performance.now();
  const random = createRandom(Number(values.seed));
  await using own = await AlertRig.open({ shards: SHARDS });
  const tenants = await own.createTenants(1);
  const deaths = planDeaths([...WORKER_POINTS, ...NOTIFIER_POINTS], times, random);
  const onDeath = (_death: unknown, index: number): void => {
    if ((index + 1) % 30 === 0) say(`${index + 1} of ${deaths.length} deaths`);
  };
  const counts = await runDeaths(own, tenants, deaths, { random, onDeath });
  own.startWorker();
  const recipients = deaths.map((_, index) => `victim-${index}@example.com`);
  await waitFor(
    'a mail of each rule',
    () => {
      const told = new Set(own.smtp.mails.map(({ recipient }) => recipient));
      return recipients.every((recipient) => told.has(recipient));
    },
    MAIL_MS_MAX,
  ).catch((error: unknown) => say(String(error)));
  await own.waitForRest(REST_MS_MAX);
  const mails = own.smtp.mails;
  const verdict = await judgeAlerts({ rig: own.rig, api: own.alerts, tenants, mails });
  const rows = [...counts].map(([point, count]) => [point, String(count)]);
  say(renderTable(['killed at', 'times'], rows));
  say(JSON.stringify(verdict));
  say(`seed ${values.seed}, ${((performance.now() - startedAt) / 1_000).toFixed(0)} s`);
  const isKept =
    verdict.faults.length === 0 && verdict.lost + verdict.surplus === 0 && verdict.crossings > deaths.length;
  say(isKept ? 'kept: no crossing lost, none twice' : 'BROKEN: the promise was not kept');
  return isKept;
}

const watchdog = setTimeout(
  () => {
    say('not done in time');
    process.exit(1);
  },
  (10 + times) * 60_000,
);
process.exitCode = (await run()) ? 0 : 1;
clearTimeout(watchdog);
