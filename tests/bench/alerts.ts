import { shardKeys } from '@logpond/db/shard-map';
import { waitFor } from '../support/wait.ts';
import { AlertRig } from '../system/support/alert-rig.ts';
import type { RuleDraft } from '../system/support/alert-api.ts';
import { renderCondition } from '../system/support/alert-conditions.ts';
import { KEY_PREFIX } from '../system/support/rig-state.ts';
import type { OwnedTenant } from '../system/support/rig-tenants.ts';
import { createEntries } from './corpus.ts';
import { readCpu, subtractCpu } from './process-cost.ts';
import { median, printTable } from './report.ts';
import type { BenchOptions, Figures } from './report.ts';

const ENTRIES = 200_000;
const ROUNDS = 5;
const RULES = 100;
const BATCH_ENTRIES = 1_000;
const BODIES = 8;
const CONCURRENCY = 4;
const DRAIN_MS_MAX = 120_000;
/** How long the worker's own beat is measured, to be taken off. */
const IDLE_MS = 3_000;

const LEVELS = ['debug', 'info', 'warn', 'error', 'critical'];
const SERVICES = ['checkout', 'gateway', 'inventory', 'mailer', 'payments', 'search', 'sessions', 'web'];
const COMMON = ['timed out', 'rejected', 'parcel', 'by order'];
const RARE = ['deadlock', 'out of memory', 'panic', 'connection reset', 'disk full'];

/** What a project's rules are; all of one are in one project. */
type Leg = {
  name: string;
  tenant: OwnedTenant;
  rules: Map<string, RuleDraft>;
  cpuSeconds: number[];
  sent: number;
};

type Setting = { own: AlertRig; pid: number; bodies: readonly string[]; entries: number };

/**
 * What the alert worker takes for a million entries, end to end, of projects without rules, with 100 rules on level
 * and service, and with 100 rules on the text of messages, in turns. Void unless each rule has counted what SQL
 * counts.
 */
export async function runAlerts(options: BenchOptions): Promise<Figures> {
  await using own = await AlertRig.open({ shards: 1 });
  const worker = own.startWorker();
  const entries = Math.ceil((options.entries ?? ENTRIES) / BATCH_ENTRIES) * BATCH_ENTRIES;
  const setting: Setting = { own, pid: worker.child.pid ?? 0, bodies: renderBodies(options.seed), entries };
  const legs = await makeLegs(own);
  const idle = await measureIdle(setting);
  // The first round warms everything up.
  for (let round = 0; round <= (options.rounds ?? ROUNDS); round += 1) {
    for (const leg of rotate(legs, round)) {
      const cpuSeconds = await runLeg(setting, leg, idle);
      if (round > 0) leg.cpuSeconds.push((cpuSeconds * 1e6) / entries);
    }
  }
  await own.waitForRest(DRAIN_MS_MAX);
  for (const leg of legs) await compareCounts(own, leg);
  return report(legs, entries, idle);
}

/** Each leg comes first, second and last in turns. */
function rotate<T>(items: readonly T[], by: number): T[] {
  return items.map((_, index) => items[(index + by) % items.length] as T);
}

async function makeLegs(own: AlertRig): Promise<Leg[]> {
  const [none, digest, text] = await own.createTenants(3);
  if (none === undefined || digest === undefined || text === undefined)
    throw new RangeError('expected tenants');
  const legs: Leg[] = [
    { name: 'no rules', tenant: none, rules: new Map(), cpuSeconds: [], sent: 0 },
    {
      name: `${RULES} rules on level and service`,
      tenant: digest,
      rules: new Map(),
      cpuSeconds: [],
      sent: 0,
    },
    { name: `${RULES} rules on text`, tenant: text, rules: new Map(), cpuSeconds: [], sent: 0 },
  ];
  for (let index = 0; index < RULES; index += 1) {
    for (const [{ tenant, rules }, draft] of [
      [legs[1], draftDigestRule(index)],
      [legs[2], draftTextRule(index)],
    ] as [Leg, RuleDraft][]) {
      rules.set(await own.alerts.createRule(tenant, draft), draft);
    }
  }
  return legs;
}

/** None ever crosses: what is measured is the counting. */
const NEVER = { threshold: 1_000_000_000, timeWindow: '5m' };

function draftDigestRule(index: number): RuleDraft {
  const value = LEVELS[index % LEVELS.length];
  const operator = index % 3 === 0 ? 'gte' : 'equals';
  return {
    name: `Level ${index}`,
    enabled: true,
    condition: { field: 'level', operator, value, ...NEVER },
    notifications: [],
    ...(index % 2 === 0 ? { service: SERVICES[index % SERVICES.length] as string } : {}),
  };
}

/** Of a hundred a few match often, most seldom or never, as rules do. */
function draftTextRule(index: number): RuleDraft {
  const value = COMMON[index] ?? `${RARE[index % RARE.length]} ${index}`;
  return {
    name: `Text ${index}`,
    enabled: true,
    condition: { field: 'message', operator: 'contains', value, ...NEVER },
    notifications: [],
  };
}

function renderBodies(seed: number): string[] {
  const entries = createEntries(seed, BODIES * BATCH_ENTRIES);
  return Array.from({ length: BODIES }, (_, index) => {
    // JSON leaves out what is undefined: entries get the time of their arrival.
    const batch = entries.slice(index * BATCH_ENTRIES, (index + 1) * BATCH_ENTRIES);
    return JSON.stringify({ logs: batch.map((entry) => ({ ...entry, beforeMs: undefined })) });
  });
}

/** CPU seconds in a second of the worker with nothing to do. */
async function measureIdle({ pid }: Setting): Promise<number> {
  const before = readCpu(pid);
  await new Promise((resolve) => setTimeout(resolve, IDLE_MS));
  return subtractCpu(readCpu(pid), before) / (IDLE_MS / 1_000);
}

/** Sends everything and waits until it is counted. @returns CPU seconds of the worker, less its idle beat. */
async function runLeg({ own, pid, bodies, entries }: Setting, leg: Leg, idle: number): Promise<number> {
  await own.rig.waitForRest(DRAIN_MS_MAX);
  const batches = entries / BATCH_ENTRIES;
  const before = readCpu(pid);
  const startedAt = performance.now();
  let next = 0;
  const send = async (): Promise<void> => {
    while (next < batches) {
      const body = bodies[next % bodies.length] ?? '';
      next += 1;
      await post(own, leg.tenant, body);
    }
  };
  await Promise.all(Array.from({ length: CONCURRENCY }, send));
  leg.sent += entries;
  const { state } = shardKeys(KEY_PREFIX, leg.tenant.shard);
  await waitFor(
    'everything to be counted',
    async () => {
      const [admitted, counted] = await own.rig.redis.hmget(state, 'next', 'alert:done');
      return admitted === counted;
    },
    DRAIN_MS_MAX,
  );
  const seconds = (performance.now() - startedAt) / 1_000;
  return subtractCpu(readCpu(pid), before) - idle * seconds;
}

async function post({ api }: AlertRig, { apiKey }: OwnedTenant, body: string): Promise<void> {
  await waitFor(
    'a batch to be taken',
    async () => {
      const answer = await fetch(`${api.url}/api/v1/ingest`, {
        method: 'POST',
        headers: { 'X-API-Key': apiKey, 'Content-Type': 'application/json' },
        body,
        signal: AbortSignal.timeout(30_000),
      });
      await answer.arrayBuffer();
      return answer.status === 200;
    },
    DRAIN_MS_MAX,
  );
}

/** @throws {Error} when a rule has counted anything but what SQL counts. */
async function compareCounts(own: AlertRig, leg: Leg): Promise<void> {
  for (const [id, { condition, service }] of leg.rules) {
    const { sql, params } = renderCondition(condition, service);
    const [row] = await own.rig.selectRows<{ entries: string }>(
      `SELECT toString(count()) AS entries FROM logs WHERE project_id = {project:UUID} AND (${sql})`,
      { ...params, project: leg.tenant.projectId },
    );
    const counted = await own.readCounted(leg.tenant, id);
    if (counted !== Number(row?.entries))
      throw new Error(`void: ${JSON.stringify(condition)} counted ${counted}, SQL says ${row?.entries}`);
  }
}

function report(legs: readonly Leg[], entries: number, idle: number): Figures {
  const base = median(legs[0]?.cpuSeconds ?? []);
  const rows = legs.map(({ name, cpuSeconds }) => ({
    name,
    median: median(cpuSeconds),
    min: Math.min(...cpuSeconds),
    max: Math.max(...cpuSeconds),
    onTop: median(cpuSeconds) - base,
  }));
  printTable(
    `CPU-s of the alert worker per million entries; ${legs[0]?.cpuSeconds.length} rounds of ${entries} entries, batches of ${BATCH_ENTRIES}`,
    ['', 'median', 'min', 'max', 'on top of no rules'],
    rows.map((row) => [
      row.name,
      ...[row.median, row.min, row.max, row.onTop].map((value) => value.toFixed(3)),
    ]),
  );
  console.log(
    `Each rule counted what SQL counts. The worker's beat, ${(100 * idle).toFixed(2)} % of a core, is taken off.`,
  );
  return { rows, entriesPerRound: entries, idleShare: idle };
}
