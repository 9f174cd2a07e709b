import { setTimeout as delay } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { MemorySampler } from './support/chaos-memory.ts';
import { formatCount, renderTable } from './support/chaos-table.ts';
import { waitFor } from '../support/wait.ts';
import { judge } from './support/judge.ts';
import { Oracle } from './support/oracle.ts';
import { Rig } from './support/rig.ts';

/**
 * Stops ClickHouse for a while under a steady load, starts it again while the load goes on, and shows that all was
 * acknowledged meanwhile, that what waited is stored faster than more arrives, and how much memory each process took.
 * Exit code 1 when one of them does not hold, or when the judge finds an entry lost or stored twice.
 *
 *   npm run outage -- --minutes 10 --rate 5000
 */
const SHARDS = 4;
const ROWS_PER_REQUEST = 100;
const IN_FLIGHT_MAX = 64;
const BEFORE_SECONDS = 10;
/** For the outage's end, draining and slack. */
const AFTER_SECONDS = 120;
/** In the stream, compressed, of about 480 bytes of JSON. */
const STREAM_BYTES_PER_ENTRY_MAX = 320;
/** Up to here nobody is refused anything. */
const CALM_SHARE = 0.55;
/** Of Redis' memory that the budget may be (packages/db/src/connect.ts). */
const MEMORY_SHARE = 0.6;
const BUDGET_BYTES_MIN = 64 * 1024 * 1024;
const DRAIN_FACTOR_MIN = 3;
/** The lag counts as gone when no more waits than arrives in this time. */
const CAUGHT_UP_SECONDS = 2;
const DRAIN_MS_MAX = 30 * 60_000;

const { values } = parseArgs({
  options: {
    minutes: { type: 'string', default: '10' },
    rate: { type: 'string', default: '5000' },
  },
});
const outageMs = readNumber('minutes', values.minutes) * 60_000;
const rate = readNumber('rate', values.rate);
const seconds = BEFORE_SECONDS + outageMs / 1_000 + AFTER_SECONDS;
const budgetBytes = Math.max(
  BUDGET_BYTES_MIN,
  Math.ceil((seconds * rate * STREAM_BYTES_PER_ENTRY_MAX) / CALM_SHARE),
);

type Drain = { backlog: number; seconds: number; stored: number };

function readNumber(name: string, text: string): number {
  const number = Number(text);
  if (!(number > 0)) throw new RangeError(`--${name}: expected a number above 0, got ${text}`);
  return number;
}

function say(line: string): void {
  process.stdout.write(`${line}\n`);
}

/** Open loop: a request is due by the clock, whether or not the ones before are answered. */
function startPacedLoad(oracle: Oracle): { stop: () => Promise<{ latestMs: number }> } {
  const stop = new AbortController();
  const intervalMs = (1_000 * ROWS_PER_REQUEST) / rate;
  const inFlight = new Set<Promise<unknown>>();
  let latestMs = 0;
  const run = async (): Promise<void> => {
    const startedAt = performance.now();
    for (let index = 0; !stop.signal.aborted; index += 1) {
      const dueAt = startedAt + index * intervalMs;
      const earlyMs = dueAt - performance.now();
      if (earlyMs > 0) await delay(earlyMs);
      while (inFlight.size >= IN_FLIGHT_MAX) await Promise.race(inFlight);
      latestMs = Math.max(latestMs, performance.now() - dueAt);
      const tenant = oracle.tenants[index % oracle.tenants.length];
      if (tenant === undefined) throw new RangeError('expected a tenant');
      const options = { rows: ROWS_PER_REQUEST, isKeyed: index % 2 === 0, signal: stop.signal };
      const sending = oracle.send(tenant, options).finally(() => inFlight.delete(sending));
      inFlight.add(sending);
    }
    await Promise.all(inFlight);
  };
  const work = run();
  // A failure is told by stop().
  work.catch(() => {});
  return {
    stop: async () => {
      stop.abort();
      await work;
      return { latestMs };
    },
  };
}

async function countWaiting(rig: Rig): Promise<{ waiting: number; done: number }> {
  const shards = await rig.readShards();
  return shards.reduce(
    (sum, { next, done }) => ({ waiting: sum.waiting + next - done, done: sum.done + done }),
    { waiting: 0, done: 0 },
  );
}

/** Bytes in all streams, as the budget counts them. */
async function countBytes(rig: Rig): Promise<number> {
  const shards = await rig.readShards();
  return shards.reduce((sum, { heldBytes }) => sum + heldBytes, 0);
}

/** Starts ClickHouse again and waits until the shards have caught up with what arrives. */
async function drain(rig: Rig): Promise<Drain> {
  await rig.startClickHouse();
  const startedAt = performance.now();
  const before = await countWaiting(rig);
  let after = before;
  await waitFor(
    'the shards to catch up',
    async () => {
      after = await countWaiting(rig);
      return after.waiting < CAUGHT_UP_SECONDS * rate;
    },
    DRAIN_MS_MAX,
  );
  const drainSeconds = (performance.now() - startedAt) / 1_000;
  return { backlog: before.waiting, seconds: drainSeconds, stored: after.done - before.done };
}

async function run(): Promise<boolean> {
  const maxmemoryBytes = Math.ceil(budgetBytes / MEMORY_SHARE);
  const env = { REDIS_BUDGET_BYTES: String(budgetBytes) };
  await using rig = await Rig.open({ shards: SHARDS, maxmemoryBytes, env });
  const workers = [rig.startWorker(), rig.startWorker()];
  const alertWorker = rig.startAlertWorker();
  const tenants = await rig.createTenants(1);
  const api = await rig.startApi();
  say(
    `${rate} entries/s in requests of ${ROWS_PER_REQUEST}, ${outageMs / 60_000} min without ClickHouse; REDIS_BUDGET_BYTES=${budgetBytes} (${Math.ceil(budgetBytes / 2 ** 20)} MiB), maxmemory ${maxmemoryBytes}`,
  );
  using memory = new MemorySampler(
    () =>
      new Map([
        ['api', api.child.pid ?? 0],
        ...workers.map(({ child }, index): [string, number] => [
          `ingest-worker ${index + 1}`,
          child.pid ?? 0,
        ]),
        ['alert-worker', alertWorker.child.pid ?? 0],
        ['redis-server', rig.pidOf('redis')],
        ['clickhouse', rig.pidOf('clickhouse')],
        ['load generator', process.pid],
      ]),
  );
  const oracle = new Oracle({ run: 'outage', tenants, url: api.url });
  const load = startPacedLoad(oracle);
  await delay(BEFORE_SECONDS * 1_000);
  await rig.killClickHouse();
  for (let waitedMs = 0; waitedMs < outageMs; waitedMs += 30_000) {
    await delay(Math.min(30_000, outageMs - waitedMs));
    const { waiting } = await countWaiting(rig);
    say(`${formatCount(oracle.acknowledgedRows)} acknowledged, ${formatCount(waiting)} wait to be stored`);
  }
  const heldBytes = await countBytes(rig);
  say(
    `the streams hold ${(heldBytes / 2 ** 20).toFixed(0)} MiB, ${((100 * heldBytes) / budgetBytes).toFixed(0)} % of the budget`,
  );
  const drained = await drain(rig);
  const { latestMs } = await load.stop();
  const summary = memory.summarize();
  await rig.waitForRest(DRAIN_MS_MAX);
  const verdict = await judge(rig, oracle, api.url);
  return report({ oracle, drained, latestMs, summary, verdict });
}

function report({
  oracle,
  drained,
  latestMs,
  summary,
  verdict,
}: {
  oracle: Oracle;
  drained: Drain;
  latestMs: number;
  summary: ReturnType<MemorySampler['summarize']>;
  verdict: Awaited<ReturnType<typeof judge>>;
}): boolean {
  const megabytes = (bytes: number): string => (bytes / 1e6).toFixed(0);
  const factor = drained.stored / drained.seconds / rate;
  const rows = summary.map(({ name, minBytes, medianBytes, maxBytes }) => [
    name,
    ...[minBytes, medianBytes, maxBytes].map(megabytes),
  ]);
  say(`\n${renderTable(['resident memory, MB', 'min', 'median', 'max'], rows)}\n`);
  const statuses = [...oracle.statuses].map(([status, count]) => `${count} × ${status}`).join(', ');
  say(`answers: ${statuses}; the latest request was sent ${latestMs.toFixed(0)} ms after it was due`);
  say(
    `${formatCount(drained.backlog)} entries waited; ${formatCount(drained.stored)} were stored in ${drained.seconds.toFixed(1)} s while more arrived: ${factor.toFixed(1)} times the arrival rate`,
  );
  const { acknowledged, stored, lost, duplicated, foreign, changed, deadLettered, faults } = verdict;
  say(JSON.stringify({ acknowledged, stored, lost, duplicated, foreign, changed, deadLettered, faults }));
  const isKept = faults.length === 0 && lost + duplicated + foreign + changed === 0 && acknowledged > 0;
  const isAcknowledged = [...oracle.statuses.keys()].join() === '200';
  const isFast = factor > DRAIN_FACTOR_MIN;
  say(isKept ? 'kept: nothing lost, nothing duplicated' : 'BROKEN: the promise was not kept');
  if (!isAcknowledged) say('BROKEN: not everything was acknowledged at once');
  if (!isFast) say(`BROKEN: drained at ${factor.toFixed(1)} times the arrival rate, not ${DRAIN_FACTOR_MIN}`);
  return isKept && isAcknowledged && isFast;
}

const timeMsMax = outageMs + DRAIN_MS_MAX + 20 * 60_000;
const watchdog = setTimeout(() => {
  say(`not done within ${Math.round(timeMsMax / 60_000)} minutes`);
  process.exit(1);
}, timeMsMax);
process.exitCode = (await run()) ? 0 : 1;
clearTimeout(watchdog);
