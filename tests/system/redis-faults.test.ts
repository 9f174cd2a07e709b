import { setTimeout as delay } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { waitFor } from '../support/wait.ts';
import { FakeRedis } from './support/fake-redis.ts';
import type { Interception } from './support/fake-redis.ts';
import { judge } from './support/judge.ts';
import type { Verdict } from './support/judge.ts';
import { Oracle } from './support/oracle.ts';
import { chooseSeed, createRandom, pickInteger } from './support/random.ts';
import { Rig } from './support/rig.ts';
import type { ApiProcess } from './support/rig.ts';

/** Each letter is one death of Redis: killed, or without power; capitals while no worker empties the streams. */
const DEATHS = 'kPpPK';
const FILLER_BYTES = 1024 * 1024;

let rig: Rig;
let api: ApiProcess;

beforeAll(async () => {
  rig = await Rig.open({
    shards: 2,
    powerLoss: ['redis'],
    // A memory that can be filled in no time, and a budget that fits.
    maxmemoryBytes: 64 * 1024 * 1024,
    env: { REDIS_BUDGET_BYTES: '33554432' },
  });
  await rig.createTenants(1);
  rig.startWorker();
  api = await rig.startApi();
  await rig.killWorkers();
});
afterEach(async () => rig.killWorkers());
afterAll(async () => rig[Symbol.asyncDispose]());

async function restAndJudge(oracle: Oracle): Promise<Verdict> {
  await rig.waitForRest();
  const verdict = await judge(rig, oracle, api.url);
  process.stdout.write(`${oracle.run}: ${JSON.stringify(verdict)} ${JSON.stringify([...oracle.statuses])}\n`);
  for (const { received, stored, dead, pending } of await rig.readAccounts()) {
    expect({ received, pending }).toEqual({ received: stored + dead, pending: 0 });
  }
  return verdict;
}

describe('F07, F08: Redis killed, and without power, under load', () => {
  it('and started again on its directory: no acknowledged entry is lost, only 503 is answered meanwhile', async () => {
    const random = createRandom(chooseSeed('F07, F08'));
    const keyed = new Oracle({ run: 'f07-keyed', tenants: await rig.createTenants(1), url: api.url });
    const unkeyed = new Oracle({ run: 'f07', tenants: await rig.createTenants(1), url: api.url });
    const options = { concurrency: 3, rowsPerRequest: 20, pauseMs: 10 };
    await using keyedLoad = keyed.startLoad({ ...options, isKeyed: true });
    await using unkeyedLoad = unkeyed.startLoad({ ...options, isKeyed: false, ambiguousMax: 1 });
    for (const death of DEATHS) {
      // What no worker has taken is in Redis alone: nobody else can bring it back.
      if (death === death.toUpperCase()) await rig.killWorkers();
      else rig.startWorker();
      const before = keyed.acknowledgedRows;
      await waitFor('entries to be acknowledged', () => keyed.acknowledgedRows > before + 400, 30_000);
      await delay(pickInteger(random, 0, 300));
      if (death.toLowerCase() === 'k') await rig.killRedis();
      else await rig.losePower('redis');
      const refused = keyed.statuses.get(503) ?? 0;
      await waitFor('a request to be answered 503', () => (keyed.statuses.get(503) ?? 0) > refused + 3);
      await rig.startRedis();
      // Nothing is admitted before a worker has compared the streams with ClickHouse.
      rig.startWorker();
      await rig.waitUntilAdmitting();
      const after = keyed.acknowledgedRows;
      await waitFor('entries to be acknowledged again', () => keyed.acknowledgedRows > after, 30_000);
    }
    await Promise.all([keyedLoad.stop(), unkeyedLoad.stop()]);
    expect(new Set([...keyed.statuses.keys(), ...unkeyed.statuses.keys()])).toEqual(new Set([200, 503]));
    expect(keyed.unannounced + unkeyed.unannounced).toBe(0);
    for (const oracle of [keyed, unkeyed]) {
      const verdict = await restAndJudge(oracle);
      expect(verdict).toMatchObject({ faults: [], lost: 0, duplicated: 0, extraCopies: 0 });
    }
  });
});

describe('F13: Redis at maxmemory', () => {
  it('answers 503, its streams are emptied all the same by a worker old or new, and accounts can be read', async () => {
    rig.startWorker();
    const oracle = new Oracle({ run: 'f13', tenants: await rig.createTenants(1), url: api.url });
    await waitFor('a worker for all shards', async () => (await rig.countLeases())[0] === rig.shards);
    await rig.killWorkers();
    for (const tenant of oracle.tenants) await oracle.send(tenant, { rows: 500, isKeyed: true });
    rig.startWorker();
    await waitFor('a worker for all shards', async () => (await rig.countLeases())[0] === rig.shards);
    const freeMemory = await fillMemory();
    try {
      const [tenant] = oracle.tenants;
      if (tenant === undefined) throw new RangeError('expected a tenant');
      const refused = await oracle.send(tenant, { rows: 1, isKeyed: true, ambiguousMax: 3 });
      expect(refused.outcomes).toEqual(['ambiguous', 'ambiguous', 'ambiguous']);
      expect([...oracle.statuses.keys()]).toEqual([200, 503]);
      expect(oracle.unannounced).toBe(0);
      await rig.waitForRest();
      // A worker that starts now finds what it needs too.
      await rig.killWorkers();
      rig.startWorker();
      await waitFor('a worker for all shards', async () => (await rig.countLeases())[0] === rig.shards);
      const read = await fetch(`${api.url}/api/v1/logs?limit=1`, { headers: { 'X-API-Key': tenant.apiKey } });
      expect(read.status).toBe(200);
    } finally {
      await freeMemory();
    }
    for (const tenant of oracle.tenants) await oracle.send(tenant, { rows: 10, isKeyed: true });
    expect(await restAndJudge(oracle)).toMatchObject({ faults: [], lost: 0, duplicated: 0 });
  });

  it('takes a plan, commits it and trims while there is no memory left', async () => {
    await rig.killWorkers();
    const oracle = new Oracle({ run: 'f13-drain', tenants: await rig.createTenants(1), url: api.url });
    for (const tenant of oracle.tenants) await oracle.send(tenant, { rows: 1_000, isKeyed: true });
    const freeMemory = await fillMemory();
    try {
      rig.startWorker();
      await rig.waitForRest();
    } finally {
      await freeMemory();
    }
    expect(await restAndJudge(oracle)).toMatchObject({ faults: [], acknowledged: 2_000, stored: 2_000 });
  });
});

/** Writes keys until Redis takes no more. @returns what removes them. */
async function fillMemory(): Promise<() => Promise<void>> {
  const keys: string[] = [];
  for (;;) {
    const key = `filler:${keys.length}`;
    keys.push(key);
    try {
      await rig.redis.setrange(key, FILLER_BYTES - 1, 'x');
    } catch (error) {
      if (!String(error).includes('OOM')) throw error;
      return async () => void (await rig.redis.del(...keys));
    }
  }
}

const ERRORS = [
  "READONLY You can't write against a read only replica.",
  'LOADING Redis is loading the dataset in memory',
  'CLUSTERDOWN The cluster is down',
  'TRYAGAIN Multiple keys request during rehashing of slot',
  'MISCONF Redis is configured to save RDB snapshots, but it is currently not able to persist on disk.',
  "OOM command not allowed when used memory > 'maxmemory'.",
  "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
  'NOREPLICAS Not enough good replicas to write.',
];

function refuseScripts(error: string): Interception {
  return { error, matches: ([name]) => name === 'EVALSHA' || name === 'EVAL' };
}

describe('F18: Redis refuses', () => {
  it('with any of its errors: 503 with Retry-After, and 200 as soon as it does so no more', async () => {
    await using fake = await FakeRedis.open(rig.redis.options.port ?? 0);
    const own = await startBehind(fake);
    rig.startWorker();
    const oracle = new Oracle({ run: 'f18', tenants: await rig.createTenants(1), url: own.url });
    const [tenant] = oracle.tenants;
    if (tenant === undefined) throw new RangeError('expected a tenant');
    for (const error of ERRORS) {
      fake.intercept(refuseScripts(error));
      const refused = await oracle.send(tenant, { rows: 2, isKeyed: false, ambiguousMax: 1 });
      expect({ error, status: refused.status }).toEqual({ error, status: 503 });
      expect(refused.retryAfter).toMatch(/^[1-9]\d*$/);
      fake.intercept(undefined);
      expect(await oracle.send(tenant, { rows: 2, isKeyed: false })).toMatchObject({ status: 200 });
    }
    fake.turnAway('ERR max number of clients reached');
    const away = await oracle.send(tenant, { rows: 2, isKeyed: false, ambiguousMax: 1 });
    expect(away.status).toBe(503);
    fake.turnAway(undefined);
    await oracle.send(tenant, { rows: 2, isKeyed: true });
    expect(oracle.unannounced).toBe(0);
    const stored = 2 * ERRORS.length + 2;
    expect(await restAndJudge(oracle)).toMatchObject({ faults: [], acknowledged: stored, stored });
    await own.kill();
  });

  it('the scripts of a worker: it tries again, loses nothing and duplicates nothing', async () => {
    await using fake = await FakeRedis.open(rig.redis.options.port ?? 0);
    rig.startWorker({ REDIS_URL: fake.redirect(rig.env['REDIS_URL'] ?? '') });
    const oracle = new Oracle({ run: 'f18-worker', tenants: await rig.createTenants(1), url: api.url });
    await using load = oracle.startLoad({ concurrency: 2, rowsPerRequest: 20, pauseMs: 10, isKeyed: true });
    // Two of them: after each it gives its shards back and takes them again.
    for (const error of ERRORS.slice(0, 2)) {
      const before = oracle.acknowledgedRows;
      await waitFor('entries to be acknowledged', () => oracle.acknowledgedRows > before + 100);
      const { refused } = fake;
      fake.intercept(refuseScripts(error));
      await waitFor('the worker to be refused', () => fake.refused > refused + 2);
      fake.intercept(undefined);
    }
    await load.stop();
    const verdict = await restAndJudge(oracle);
    expect(verdict).toMatchObject({ faults: [], lost: 0, duplicated: 0, stored: verdict.acknowledged });
  });
});

/** An API whose Redis is the fake one. */
async function startBehind(fake: FakeRedis): Promise<ApiProcess> {
  const worker = rig.startWorker();
  const own = await rig.startApi({ REDIS_URL: fake.redirect(rig.env['REDIS_URL'] ?? '') });
  await rig.killApp(worker);
  return own;
}

describe('the fake server', () => {
  it('answers with the very error, between the answers before and behind it', async () => {
    await using fake = await FakeRedis.open(rig.redis.options.port ?? 0);
    const client = new Redis(fake.redirect(rig.env['REDIS_URL'] ?? ''));
    client.on('error', () => {});
    for (const error of ERRORS) {
      fake.intercept({ error, matches: ([name, key]) => name === 'GET' && key === 'b' });
      const answers = await client.pipeline().echo('1').get('b').echo('2').exec();
      expect(answers?.map(([failure, value]) => failure?.message ?? value)).toEqual(['1', error, '2']);
    }
    client.disconnect();
  });
});
