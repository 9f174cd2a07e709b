import { once } from 'node:events';
import { Worker } from 'node:worker_threads';
import { waitFor } from '../support/wait.ts';
import { sendPaced } from '../system/support/chaos-pace.ts';
import type { PaceOptions, PaceResult } from '../system/support/chaos-pace.ts';
import { Rig } from '../system/support/rig.ts';
import type { Tenant } from '../system/support/rig.ts';
import { createEntries } from './corpus.ts';
import { printTable, summarize } from './report.ts';
import type { BenchOptions, Figures } from './report.ts';

const ROUNDS = 4;
const SECONDS = 20;
const SHARDS = 2;
/** On each shard; one of all is the flooder. */
const PROJECTS = 3;
const REQUESTS_PER_SECOND = 10;
const BATCH_ENTRIES = 20;
const FLOOD_FACTOR = 50;
const BODIES = 200;
/** What the flooder brings in one phase is several times 60 % of a shard's half of it, what the others bring far less. */
const BUDGET_BYTES = 32 * 1024 * 1024;
const WARM_UP_SECONDS = 3;
const IN_FLIGHT_MAX = 128;
const DRAIN_MS_MAX = 180_000;
/** Of the budget, on each shard: what counts as empty. */
const EMPTY_SHARE = 0.02;

type Phase = { others: PaceResult[]; flooder: PaceResult };
type PhaseName = 'quiet' | 'flood';
type Setting = { url: string; tenants: readonly Tenant[]; bodies: readonly Uint8Array[]; seconds: number };

/**
 * F41: whether one project that sends 50 times as much as each of the others disturbs them, while ClickHouse is down
 * and the budget small. Phases with and without the flood take turns in one run; before each, everything is drained.
 */
export async function runFlood(options: BenchOptions): Promise<Figures> {
  await using rig = await Rig.open({
    shards: SHARDS,
    // What was stored is dropped soon, so that each phase begins with empty streams.
    env: { REDIS_BUDGET_BYTES: String(BUDGET_BYTES), REPLAY_WINDOW_MS: '10000', AUDIT_AFTER_MS: '5000' },
  });
  rig.startWorker();
  rig.startAlertWorker();
  const tenants = await rig.createTenants(PROJECTS);
  const api = await rig.startApi();
  const seconds = options.seconds ?? SECONDS;
  const setting = { url: api.url, tenants, bodies: renderBodies(options.seed), seconds };
  const phases: Record<PhaseName, Phase[]> = { quiet: [], flood: [] };
  await runPhase({ ...setting, seconds: WARM_UP_SECONDS }, FLOOD_FACTOR);
  for (let round = 0; round < (options.rounds ?? ROUNDS); round += 1) {
    for (const name of round % 2 === 0 ? (['quiet', 'flood'] as const) : (['flood', 'quiet'] as const)) {
      await waitForEmptyStreams(rig);
      await rig.killClickHouse();
      phases[name].push(await runPhase(setting, name === 'flood' ? FLOOD_FACTOR : 1));
      await rig.startClickHouse();
    }
  }
  await rig.waitForRest(DRAIN_MS_MAX);
  return report(phases, seconds);
}

async function waitForEmptyStreams(rig: Rig): Promise<void> {
  await rig.waitForRest(DRAIN_MS_MAX);
  await waitFor(
    'the streams to be trimmed',
    async () => (await rig.readShards()).every(({ heldBytes }) => heldBytes <= BUDGET_BYTES * EMPTY_SHARE),
    DRAIN_MS_MAX,
  );
}

function renderBodies(seed: number): Uint8Array[] {
  const entries = createEntries(seed, BODIES * BATCH_ENTRIES);
  return Array.from({ length: BODIES }, (_, index) => {
    // JSON leaves out what is undefined: entries get the time of their arrival.
    const logs = entries
      .slice(index * BATCH_ENTRIES, (index + 1) * BATCH_ENTRIES)
      .map((entry) => ({ ...entry, beforeMs: undefined }));
    return new Uint8Array(Buffer.from(JSON.stringify({ logs })));
  });
}

async function runPhase({ url, tenants, bodies, seconds }: Setting, factor: number): Promise<Phase> {
  const [first, ...rest] = tenants;
  if (first === undefined) throw new RangeError('expected a tenant');
  const shared = { url, bodies, seconds, requestsPerSecond: REQUESTS_PER_SECOND, inFlightMax: IN_FLIGHT_MAX };
  const flooder = new Worker(new URL('flooder.ts', import.meta.url), {
    workerData: {
      ...shared,
      apiKey: first.apiKey,
      requestsPerSecond: factor * REQUESTS_PER_SECOND,
    } satisfies PaceOptions,
  });
  const [[told], others] = await Promise.all([
    once(flooder, 'message') as Promise<[PaceResult]>,
    // Their clocks are apart, so that they do not wait for each other.
    Promise.all(rest.map(async ({ apiKey }, index) => startLater({ ...shared, apiKey }, index))),
  ]);
  return { others, flooder: told };
}

async function startLater(options: PaceOptions, index: number): Promise<PaceResult> {
  await new Promise((resolve) => setTimeout(resolve, index * 17));
  return sendPaced(options);
}

/** The times to the receipts of the others in a phase; optionally only before, or after, the first 429. */
function othersMs({ others, flooder }: Phase, part?: 'before 429' | 'after 429'): number[] {
  const { firstRefusedMs = Infinity } = flooder;
  return others
    .flatMap(({ acknowledged }) => acknowledged)
    .filter(({ dueMs }) => part === undefined || dueMs < firstRefusedMs === (part === 'before 429'))
    .map(({ tookMs }) => tookMs);
}

function report(phases: Record<PhaseName, Phase[]>, seconds: number): Figures {
  const { quiet, flood } = phases;
  const rows = [
    summarizePhases('quiet', quiet),
    summarizePhases('flood', flood),
    summarizePhases('  until the flooder is refused', flood, 'before 429'),
    summarizePhases('  from then on', flood, 'after 429'),
  ];
  printTable(
    `${PROJECTS * SHARDS - 1} projects with ${REQUESTS_PER_SECOND} requests/s of ${BATCH_ENTRIES} entries each, one with as much (quiet) or ${FLOOD_FACTOR} times as much (flood); phases of ${seconds} s, ClickHouse down, budget ${BUDGET_BYTES / 2 ** 20} MiB`,
    ["the others' receipts", 'count', 'p50, ms', 'p99, ms', 'max, ms', 'p99 by round, ms'],
    rows.map(({ name, receipts: { count, p50, p99, max }, p99OfRounds }) => [
      name,
      String(count),
      ...[p50, p99, max].map((ms) => ms.toFixed(1)),
      p99OfRounds.map((ms) => ms.toFixed(1)).join(' '),
    ]),
  );
  const answers = {
    'quiet: others': addUp(quiet.flatMap(({ others }) => others)),
    'quiet: flooder': addUp(quiet.map(({ flooder }) => flooder)),
    'flood: others': addUp(flood.flatMap(({ others }) => others)),
    'flood: flooder': addUp(flood.map(({ flooder }) => flooder)),
  };
  console.log('');
  for (const [name, counts] of Object.entries(answers)) console.log(`${name}: ${JSON.stringify(counts)}`);
  const leftOut = flood.reduce((sum, { flooder }) => sum + flooder.leftOut, 0);
  const ratio = (rows[1]?.receipts.p99 ?? Number.NaN) / (rows[0]?.receipts.p99 ?? Number.NaN);
  const isOnlyFlooder = isOnlyFlooderRefused(answers['flood: others'], answers['flood: flooder']);
  console.log(
    `the flooder left out ${leftOut} requests because ${IN_FLIGHT_MAX} were under way\nthe others' p99 is ${ratio.toFixed(2)} times the quiet one (target: at most 1.2); ${
      isOnlyFlooder
        ? 'only the flooder was refused, with 429'
        : 'NOT only the flooder was refused, or it was not'
    }`,
  );
  return { rows, answers, leftOut, ratio, isOnlyFlooder, budgetBytes: BUDGET_BYTES };
}

function isOnlyFlooderRefused(others: Record<string, number>, flooder: Record<string, number>): boolean {
  const refused = flooder['429 BACKPRESSURE'] ?? 0;
  const isNothingElse = refused + (flooder['200'] ?? 0) === Object.values(flooder).reduce((a, b) => a + b, 0);
  return Object.keys(others).join() === '200' && refused > 0 && isNothingElse;
}

type PhaseFigures = { name: string; receipts: ReturnType<typeof summarize>; p99OfRounds: number[] };

function summarizePhases(
  name: string,
  phases: readonly Phase[],
  part?: Parameters<typeof othersMs>[1],
): PhaseFigures {
  return {
    name,
    receipts: summarize(phases.flatMap((phase) => othersMs(phase, part))),
    p99OfRounds: phases.map((phase) => summarize(othersMs(phase, part)).p99),
  };
}

function addUp(results: readonly PaceResult[]): Record<string, number> {
  const sum: Record<string, number> = {};
  for (const { answers } of results) {
    for (const [name, count] of Object.entries(answers)) sum[name] = (sum[name] ?? 0) + count;
  }
  return sum;
}
