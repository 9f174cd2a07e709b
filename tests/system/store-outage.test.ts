import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { waitFor } from '../support/wait.ts';
import { judge } from './support/judge.ts';
import type { Verdict } from './support/judge.ts';
import { Oracle } from './support/oracle.ts';
import { chooseSeed, createRandom, pickInteger } from './support/random.ts';
import { Rig } from './support/rig.ts';
import type { ApiProcess } from './support/rig.ts';

const REDIS_KILLS = 3;
const CLICKHOUSE_DOWN_MS = 10_000;

let rig: Rig;
let api: ApiProcess;

beforeAll(async () => {
  rig = await Rig.open({ shards: 2 });
  await rig.createTenants(1);
  rig.startWorker();
  api = await rig.startApi();
});
afterEach(async () => rig.killWorkers());
afterAll(async () => rig[Symbol.asyncDispose]());

async function restAndJudge(oracle: Oracle): Promise<Verdict> {
  await rig.waitForRest();
  const verdict = await judge(rig, oracle, api.url);
  for (const { received, stored, pending } of await rig.readAccounts()) {
    expect({ received, pending }).toEqual({ received: stored, pending: 0 });
  }
  return verdict;
}

describe('F07: Redis killed under load', () => {
  it('and started again on its directory: no acknowledged entry is lost, only 503 is answered meanwhile', async () => {
    const random = createRandom(chooseSeed('F07'));
    rig.startWorker();
    const keyed = new Oracle({ run: 'f07-keyed', tenants: await rig.createTenants(1), url: api.url });
    const unkeyed = new Oracle({ run: 'f07', tenants: await rig.createTenants(1), url: api.url });
    const options = { concurrency: 3, rowsPerRequest: 20, pauseMs: 10 };
    await using keyedLoad = keyed.startLoad({ ...options, isKeyed: true });
    await using unkeyedLoad = unkeyed.startLoad({ ...options, isKeyed: false, ambiguousMax: 1 });
    for (let kill = 0; kill < REDIS_KILLS; kill += 1) {
      const before = keyed.acknowledgedRows;
      await waitFor('entries to be acknowledged', () => keyed.acknowledgedRows > before + 200);
      await delay(pickInteger(random, 0, 300));
      await rig.killRedis();
      const refused = keyed.statuses.get(503) ?? 0;
      await waitFor('a request to be answered 503', () => (keyed.statuses.get(503) ?? 0) > refused + 3);
      await rig.startRedis();
    }
    const after = keyed.acknowledgedRows;
    await waitFor('entries to be acknowledged again', () => keyed.acknowledgedRows > after);
    await Promise.all([keyedLoad.stop(), unkeyedLoad.stop()]);
    expect(new Set([...keyed.statuses.keys(), ...unkeyed.statuses.keys()])).toEqual(new Set([200, 503]));
    for (const oracle of [keyed, unkeyed]) {
      const verdict = await restAndJudge(oracle);
      process.stdout.write(`F07: ${JSON.stringify(verdict)} ${JSON.stringify([...oracle.statuses])}\n`);
      expect(verdict).toMatchObject({ faults: [], extraCopies: 0 });
    }
  });
});

describe('ClickHouse', () => {
  it('killed twice under load and started again: nothing lost, nothing duplicated, every batch answered 200', async () => {
    rig.startWorker();
    const oracle = new Oracle({ run: 'engine-kill', tenants: await rig.createTenants(1), url: api.url });
    await using load = oracle.startLoad({ concurrency: 3, rowsPerRequest: 50, pauseMs: 10, isKeyed: true });
    for (let kill = 0; kill < 2; kill += 1) {
      const before = await rig.readShards();
      await waitFor('entries to be stored', async () => {
        return (await rig.readShards()).every(({ done }, shard) => done > (before[shard]?.done ?? 0) + 100);
      });
      await waitFor('an insert to be under way', async () =>
        (await rig.readShards()).some(({ plan }) => plan !== undefined),
      );
      await rig.killClickHouse();
      await rig.startClickHouse();
    }
    await load.stop();
    expect([...oracle.statuses.keys()]).toEqual([200]);
    const verdict = await restAndJudge(oracle);
    expect(verdict).toMatchObject({ faults: [], stored: verdict.acknowledged });
  });

  it('down for 10 s: every batch is answered 200 meanwhile and found once afterwards', async () => {
    rig.startWorker();
    const oracle = new Oracle({ run: 'engine-down', tenants: await rig.createTenants(1), url: api.url });
    await using load = oracle.startLoad({ concurrency: 2, rowsPerRequest: 20, pauseMs: 20, isKeyed: false });
    await waitFor('entries to be acknowledged', () => oracle.acknowledgedRows > 200);
    await rig.killClickHouse();
    await delay(CLICKHOUSE_DOWN_MS);
    const pending = (await rig.readShards()).reduce((sum, { next, done }) => sum + next - done, 0);
    await rig.startClickHouse();
    await load.stop();
    expect(pending).toBeGreaterThan(1_000);
    expect([...oracle.statuses.keys()]).toEqual([200]);
    const verdict = await restAndJudge(oracle);
    expect(verdict).toMatchObject({ faults: [], stored: verdict.acknowledged });
  });
});
