import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { waitFor } from '../support/wait.ts';
import { ChaosProxy } from './support/chaos-proxy.ts';
import { FakeClickHouse } from './support/fake-clickhouse.ts';
import type { InsertOddity } from './support/fake-clickhouse.ts';
import { judge } from './support/judge.ts';
import type { Verdict } from './support/judge.ts';
import { Oracle } from './support/oracle.ts';
import { chooseSeed, createRandom, pickInteger } from './support/random.ts';
import { Rig } from './support/rig.ts';
import type { ApiProcess } from './support/rig.ts';

const INSERT_MARK = 'insert_deduplication_token';
const TIMES_EACH = 2;
const ENGINE_KILLS = 3;
const ENGINE_POWER_LOSSES = 2;
const REFUSALS = 8;
/** Of one day each: as many as a project that keeps 14 days can have. */
const PARTITIONS = 13;

let rig: Rig;
let api: ApiProcess;

beforeAll(async () => {
  rig = await Rig.open({ shards: 2, powerLoss: ['clickhouse'], env: { AUDIT_AFTER_MS: '1000' } });
  await rig.createTenants(1);
  rig.startWorker();
  api = await rig.startApi();
  await rig.killWorkers();
});
afterEach(async () => rig.killWorkers());
afterAll(async () => rig[Symbol.asyncDispose]());

/** Commits come before the audit that mends what ClickHouse lied about. */
async function restAndJudge(oracle: Oracle): Promise<Verdict> {
  await rig.waitForRest();
  await waitFor('the audit to have mended everything', async () => {
    const accounts = await rig.readAccounts();
    return accounts.every(({ received, stored }) => received === stored);
  }).catch(() => {
    // The judge says what is missing.
  });
  const verdict = await judge(rig, oracle, api.url, { isRollUpJudged: true });
  process.stdout.write(`${oracle.run}: ${JSON.stringify(verdict)} ${JSON.stringify([...oracle.statuses])}\n`);
  return verdict;
}

const ALL_ODD = 40 * TIMES_EACH;
const KEPT = { faults: [], lost: 0, duplicated: 0, acknowledged: ALL_ODD, stored: ALL_ODD };

/** Sends batches to both shards, and each first insert of one is treated oddly. */
async function sendOddly(oddity: InsertOddity): Promise<Verdict> {
  await using fake = await FakeClickHouse.open(rig.env['CLICKHOUSE_URL'] ?? '');
  rig.startWorker({ CLICKHOUSE_URL: fake.url });
  const oracle = new Oracle({ run: 'odd', tenants: await rig.createTenants(1), url: api.url });
  for (let turn = 0; turn < TIMES_EACH; turn += 1) {
    for (const tenant of oracle.tenants) {
      fake.expectInserts(oddity);
      await oracle.send(tenant, { rows: 20, isKeyed: false });
      await rig.waitForRest();
    }
  }
  expect(fake.injected.get(oddity)).toBe(2 * TIMES_EACH);
  expect(fake.waiting).toBe(0);
  return await restAndJudge(oracle);
}

describe('ClickHouse answers oddly', () => {
  it('F21: it stores an insert and its answer is lost: stored once', async () => {
    expect(await sendOddly('apply then cut')).toMatchObject(KEPT);
  });

  it('F22: an insert that was cut off is stored just before its repetition: stored once', async () => {
    expect(await sendOddly('cut, apply before the retry')).toMatchObject(KEPT);
  });

  it('F22: an insert that was cut off is stored just after its repetition: stored once', async () => {
    expect(await sendOddly('cut, apply after the retry')).toMatchObject(KEPT);
  });

  it('F23: it says 200 and drops the insert: the audit notices and stores it', async () => {
    expect(await sendOddly('say done, drop')).toMatchObject(KEPT);
  });

  it('F24: it says that it knows an insert which it does not have: the audit notices and stores it', async () => {
    expect(await sendOddly('say known, drop')).toMatchObject(KEPT);
  });

  it('F30: 500, 503, 429 and hang-ups for 30 % of all requests, half of the inserts stored: nothing lost or doubled', async () => {
    await using fake = await FakeClickHouse.open(rig.env['CLICKHOUSE_URL'] ?? '');
    const random = createRandom(chooseSeed('F30'));
    rig.startWorker({ CLICKHOUSE_URL: fake.url });
    const oracle = new Oracle({ run: 'f30', tenants: await rig.createTenants(1), url: api.url });
    await using load = oracle.startLoad({ concurrency: 3, rowsPerRequest: 30, pauseMs: 10, isKeyed: true });
    await waitFor('entries to be acknowledged', () => oracle.acknowledgedRows > 200);
    fake.disturb({ random, probability: 0.3 });
    const countRefusals = (): number => [...fake.injected.values()].reduce((sum, times) => sum + times, 0);
    await waitFor('requests to be refused', () => countRefusals() >= REFUSALS, 60_000);
    await load.stop();
    fake.disturb(undefined);
    expect([...oracle.statuses.keys()]).toEqual([200]);
    const verdict = await restAndJudge(oracle);
    expect(verdict).toMatchObject({ faults: [], lost: 0, duplicated: 0, stored: verdict.acknowledged });
  });
});

describe('the engine dies', () => {
  it('F25: killed in the middle of inserts into many partitions: they are completed exactly', async () => {
    await using proxy = await ChaosProxy.open(Number(new URL(rig.env['CLICKHOUSE_URL'] ?? '').port));
    const random = createRandom(chooseSeed('F25'));
    rig.startWorker({ CLICKHOUSE_URL: proxy.redirect(rig.env['CLICKHOUSE_URL'] ?? '') });
    const tenants = await rig.createTenants(1, { retentionDays: 14 });
    const oracle = new Oracle({ run: 'f25', tenants, url: api.url, spreadDays: PARTITIONS });
    await using load = oracle.startLoad({ concurrency: 2, rowsPerRequest: 52, pauseMs: 20, isKeyed: true });
    for (let kill = 0; kill < ENGINE_KILLS; kill += 1) {
      const deadAfterMs = pickInteger(random, 0, 60);
      const killed = Promise.withResolvers<void>();
      const action = async (): Promise<'forward'> => {
        delay(deadAfterMs)
          .then(async () => rig.killClickHouse())
          .then(killed.resolve, killed.reject);
        return Promise.resolve('forward');
      };
      const before = await rig.readShards();
      await waitFor('both shards to be stored', async () =>
        (await rig.readShards()).every(({ done }, shard) => done > (before[shard]?.done ?? 0)),
      );
      // Its answer never comes when the engine died first.
      void proxy.arm({ pattern: INSERT_MARK, at: 'request', action });
      await killed.promise;
      await rig.startClickHouse();
    }
    await load.stop();
    expect([...oracle.statuses.keys()]).toEqual([200]);
    const verdict = await restAndJudge(oracle);
    expect(verdict).toMatchObject({ faults: [], lost: 0, duplicated: 0, stored: verdict.acknowledged });
  });

  it('F26: without power under load: what it had said was stored is there, the rest comes from the streams', async () => {
    rig.startWorker();
    const oracle = new Oracle({ run: 'f26', tenants: await rig.createTenants(1), url: api.url });
    await using load = oracle.startLoad({ concurrency: 3, rowsPerRequest: 50, pauseMs: 10, isKeyed: true });
    for (let loss = 0; loss < ENGINE_POWER_LOSSES; loss += 1) {
      const before = await rig.readShards();
      await waitFor('entries to be stored', async () => {
        return (await rig.readShards()).every(({ done }, shard) => done > (before[shard]?.done ?? 0) + 100);
      });
      const lost = await rig.losePower('clickhouse');
      process.stdout.write(`F26: ${JSON.stringify(lost)}\n`);
      await rig.startClickHouse();
    }
    await load.stop();
    expect([...oracle.statuses.keys()]).toEqual([200]);
    const verdict = await restAndJudge(oracle);
    expect(verdict).toMatchObject({ faults: [], lost: 0, duplicated: 0, stored: verdict.acknowledged });
  });

  it('F26: killed, started again, then without power: merged parts are there although nothing else held their rows', async () => {
    rig.startWorker();
    const oracle = new Oracle({ run: 'f26-merged', tenants: await rig.createTenants(1), url: api.url });
    for (let request = 0; request < 4; request += 1) {
      for (const tenant of oracle.tenants) await oracle.send(tenant, { rows: 50, isKeyed: true });
      await rig.waitForRest();
    }
    await rig.clickhouse.command({ query: 'OPTIMIZE TABLE logs FINAL' });
    const listParts = async (): Promise<unknown> =>
      rig.selectRows("SELECT name FROM system.parts WHERE table = 'logs' AND active ORDER BY name");
    const merged = await listParts();
    await rig.killClickHouse();
    await rig.startClickHouse();
    await rig.losePower('clickhouse');
    await rig.startClickHouse();
    // A merged part that was cut would be made again from its sources, as long as those are kept.
    expect(await listParts()).toEqual(merged);
    const verdict = await restAndJudge(oracle);
    expect(verdict).toMatchObject({ faults: [], lost: 0, duplicated: 0, stored: verdict.acknowledged });
  });
});
