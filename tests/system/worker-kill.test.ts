import { once } from 'node:events';
import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import type { AppProcess } from '../support/app-process.ts';
import { judge } from './support/judge.ts';
import { Oracle } from './support/oracle.ts';
import { chooseSeed, createRandom, pickInteger } from './support/random.ts';
import { Rig } from './support/rig.ts';
import type { ApiProcess, Tenant } from './support/rig.ts';

const SHARDS = 3;
const ROWS = 20;
const KILLS = 12;
/** So that the audit of a test's own plans comes within the test. */
const AUDITED_SOON = { AUDIT_AFTER_MS: '500' };

let rig: Rig;
let api: ApiProcess;

beforeAll(async () => {
  rig = await Rig.open({ shards: SHARDS });
  const worker = rig.startWorker();
  await rig.createTenants(1);
  api = await rig.startApi();
  await worker.stop();
});
afterEach(async () => rig.killWorkers());
afterAll(async () => rig[Symbol.asyncDispose]());

/** Starts a worker that ends itself when it passes a point, waits until it has, and frees its shards. */
async function dieAt(point: string, times = 1): Promise<void> {
  const worker = rig.startWorker({ ...AUDITED_SOON, FAILPOINT: `${point}:kill:${times}` });
  const deadline = setTimeout(() => worker.child.kill('SIGTERM'), 30_000);
  await once(worker.child, 'exit');
  clearTimeout(deadline);
  expect(`${point}: ${worker.child.signalCode ?? worker.output()}`).toBe(`${point}: SIGKILL`);
  await rig.expireLeases();
}

async function createTenant(): Promise<Tenant> {
  const [tenant] = await rig.createTenants(1);
  if (tenant === undefined) throw new RangeError('expected a tenant');
  return tenant;
}

async function countStored(tenant: Tenant): Promise<number> {
  const [row] = await rig.selectRows<{ rows: string }>(
    'SELECT count() AS rows FROM logs WHERE project_id = {project:UUID}',
    { project: tenant.projectId },
  );
  return Number(row?.rows);
}

/** Nothing pending, and as many entries in ClickHouse as were ever numbered. */
async function expectBalance(): Promise<void> {
  for (const { received, stored, pending } of await rig.readAccounts()) {
    expect({ received, pending }).toEqual({ received: stored, pending: 0 });
  }
}

/** The points at which one worker after the other dies, and what the last of them leaves. */
const DEATHS: { points: string[]; left: { isPlanOpen?: boolean; isStored?: boolean } }[] = [
  { points: ['W1.after'], left: { isPlanOpen: false, isStored: false } },
  { points: ['W2.after'], left: { isPlanOpen: false, isStored: false } },
  { points: ['W3.before'], left: { isPlanOpen: false, isStored: false } },
  { points: ['W3.after'], left: { isPlanOpen: true, isStored: false } },
  { points: ['W2.decode'], left: { isPlanOpen: true, isStored: false } },
  { points: ['W4.before'], left: { isPlanOpen: true, isStored: false } },
  { points: ['W4.after'], left: { isPlanOpen: true, isStored: true } },
  { points: ['W6.before'], left: { isPlanOpen: true, isStored: true } },
  { points: ['W6.after'], left: { isPlanOpen: false, isStored: true } },
  // A shard is trimmed once a second, whatever else is done meanwhile.
  { points: ['W7.after'], left: {} },
  { points: ['W8.before'], left: { isPlanOpen: false, isStored: true } },
  { points: ['W8.after'], left: { isPlanOpen: false, isStored: true } },
  // An inherited plan that is not stored yet, and one that is.
  { points: ['W3.after', 'W2.after', 'W4.after'], left: { isPlanOpen: true, isStored: true } },
  { points: ['W4.after', 'W5.after', 'W6.before'], left: { isPlanOpen: true, isStored: true } },
  // Everything that one batch can meet, from the lease to the audit.
  {
    points: [
      'W1.after',
      'W2.after',
      'W3.before',
      'W3.after',
      'W2.decode',
      'W4.before',
      'W4.after',
      'W5.after',
      'W6.before',
      'W6.after',
      'W8.before',
      'W8.after',
    ],
    left: { isPlanOpen: false, isStored: true },
  },
];

describe('F01: a worker killed at one step', () => {
  it.each(DEATHS.map((death) => ({ ...death, path: death.points.join(', ') })))(
    '$path: loses and duplicates nothing',
    async ({ points, left }) => {
      const tenant = await createTenant();
      const oracle = new Oracle({ run: 'f01', tenants: [tenant], url: api.url });
      await oracle.send(tenant, { rows: ROWS, isKeyed: false });
      for (const point of points) await dieAt(point);
      const isPlanOpen = (await rig.readShard(tenant.shard)).plan !== undefined;
      const isStored = (await countStored(tenant)) === ROWS;
      expect({ isPlanOpen, isStored }).toMatchObject(left);
      await oracle.send(tenant, { rows: ROWS, isKeyed: false });
      rig.startWorker(AUDITED_SOON);
      await rig.waitForRest();
      const verdict = await judge(rig, oracle, api.url);
      expect(verdict).toMatchObject({ faults: [], acknowledged: 2 * ROWS, stored: 2 * ROWS });
      await expectBalance();
    },
  );

  it('W8, amid a repair: what ClickHouse lost after the commit is there again, once', async () => {
    const tenant = await createTenant();
    const oracle = new Oracle({ run: 'f01-audit', tenants: [tenant], url: api.url });
    await oracle.send(tenant, { rows: ROWS, isKeyed: false });
    await dieAt('W8.before');
    await rig.clickhouse.command({
      query: `ALTER TABLE logs DELETE WHERE project_id = {project:UUID} AND seq % 3 = 0
              SETTINGS mutations_sync = 1`,
      query_params: { project: tenant.projectId },
    });
    const left = await countStored(tenant);
    expect(left).toBeLessThan(ROWS);
    await dieAt('W4.before');
    // The first insert has the token of the plan, which ClickHouse knows: it stores nothing.
    await dieAt('W4.after');
    expect(await countStored(tenant)).toBe(left);
    await dieAt('W4.after', 2);
    expect(await countStored(tenant)).toBe(ROWS);
    rig.startWorker(AUDITED_SOON);
    await oracle.send(tenant, { rows: ROWS, isKeyed: false });
    await rig.waitForRest();
    const verdict = await judge(rig, oracle, api.url);
    expect(verdict).toMatchObject({ faults: [], acknowledged: 2 * ROWS, stored: 2 * ROWS });
    await expectBalance();
  });
});

describe('F02: workers killed again and again', () => {
  it('three workers, one killed every 0.3–1 s under load: nothing lost, nothing duplicated, all drained after', async () => {
    const random = createRandom(chooseSeed('F02'));
    const workers: AppProcess[] = [rig.startWorker(), rig.startWorker(), rig.startWorker()];
    const oracle = new Oracle({ run: 'f02', tenants: await rig.createTenants(2), url: api.url });
    await using load = oracle.startLoad({ concurrency: 4, rowsPerRequest: ROWS, pauseMs: 20, isKeyed: true });
    for (let kills = 0; kills < KILLS; kills += 1) {
      await delay(pickInteger(random, 300, 1_000));
      const victim = pickInteger(random, 0, workers.length - 1);
      await workers[victim]?.kill();
      workers[victim] = rig.startWorker();
    }
    await load.stop();
    const stoppedAt = performance.now();
    await rig.waitForRest();
    const lagMs = performance.now() - stoppedAt;
    const verdict = await judge(rig, oracle, api.url);
    process.stdout.write(
      `F02: ${KILLS} kills, ${JSON.stringify(verdict)}, drained after ${lagMs.toFixed(0)} ms\n`,
    );
    expect(verdict.faults).toEqual([]);
    expect(verdict.stored).toBe(verdict.acknowledged);
    await expectBalance();
  });
});

describe('F27: ClickHouse has forgotten the token of a plan that is open', () => {
  it('the next owner counts before it inserts, and duplicates nothing', async () => {
    const tenant = await createTenant();
    const oracle = new Oracle({ run: 'f27', tenants: [tenant], url: api.url });
    await rig.clickhouse.command({
      query: 'ALTER TABLE logs MODIFY SETTING non_replicated_deduplication_window = 1',
    });
    await oracle.send(tenant, { rows: ROWS, isKeyed: false });
    await dieAt('W4.after');
    expect(await countStored(tenant)).toBe(ROWS);

    // Copies under tokens of their own push the plan's out; that a token is out shows in a copy under it again.
    const copies = [crypto.randomUUID(), crypto.randomUUID()];
    for (const token of ['first', 'second', 'first']) {
      const copy = token === 'first' ? copies[0] : copies[1];
      await rig.clickhouse.command({
        query: `INSERT INTO logs SELECT * REPLACE(toUUID({copy:String}) AS project_id) FROM logs
                WHERE logs.project_id = {project:UUID}`,
        query_params: { copy, project: tenant.projectId },
        clickhouse_settings: { insert_deduplication_token: token, insert_deduplicate: 1 },
      });
    }
    const [again] = await rig.selectRows<{ rows: string }>(
      'SELECT count() AS rows FROM logs WHERE project_id = {copy:UUID}',
      { copy: copies[0] },
    );
    expect(again?.rows).toBe(String(2 * ROWS));
    await rig.clickhouse.command({
      query: 'ALTER TABLE logs DELETE WHERE project_id IN {copies:Array(UUID)} SETTINGS mutations_sync = 1',
      query_params: { copies },
    });

    rig.startWorker(AUDITED_SOON);
    await rig.waitForRest();
    const verdict = await judge(rig, oracle, api.url);
    expect(verdict).toMatchObject({ faults: [], acknowledged: ROWS, stored: ROWS });
    await expectBalance();
  });
});

describe('the accounts of a shard', () => {
  it('received = stored + pending, with no worker alive and after one came back', async () => {
    const oracle = new Oracle({ run: 'accounts', tenants: await rig.createTenants(1), url: api.url });
    for (const tenant of oracle.tenants) await oracle.send(tenant, { rows: 50, isKeyed: true });
    const waiting = await rig.readAccounts();
    expect(waiting.map(({ pending }) => pending)).toEqual([50, 50, 50]);
    for (const { received, stored, pending } of waiting) expect(received).toBe(stored + pending);
    rig.startWorker();
    await rig.waitForRest();
    await expectBalance();
  });
});
