import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import type { AppProcess } from '../support/app-process.ts';
import { waitFor } from '../support/wait.ts';
import { ChaosProxy } from './support/chaos-proxy.ts';
import { judge } from './support/judge.ts';
import { Oracle } from './support/oracle.ts';
import { chooseSeed, createRandom, pickInteger } from './support/random.ts';
import { Rig } from './support/rig.ts';
import type { ApiProcess } from './support/rig.ts';
import { loadScript } from './support/scripts.ts';

const INSERT_MARK = 'insert_deduplication_token';
const ROUNDS = 5;

let rig: Rig;
let api: ApiProcess;

beforeAll(async () => {
  rig = await Rig.open({ shards: 2 });
  const worker = rig.startWorker();
  await rig.createTenants(1);
  api = await rig.startApi();
  await worker.stop();
});
afterEach(async () => rig.killWorkers());
afterAll(async () => rig[Symbol.asyncDispose]());

type Step = {
  step: string;
  store: 'redis' | 'clickhouse';
  at: 'request' | 'reply';
  /** What the killed worker must have left behind. */
  left: { isPlanOpen: boolean; isStored: boolean };
};

const STEPS: Step[] = [
  {
    step: 'W4, before the insert',
    store: 'clickhouse',
    at: 'request',
    left: { isPlanOpen: true, isStored: false },
  },
  {
    step: 'W4, after the insert',
    store: 'clickhouse',
    at: 'reply',
    left: { isPlanOpen: true, isStored: true },
  },
  {
    step: 'W6, before the commit',
    store: 'redis',
    at: 'request',
    left: { isPlanOpen: true, isStored: true },
  },
  { step: 'W6, after the commit', store: 'redis', at: 'reply', left: { isPlanOpen: false, isStored: true } },
];

describe('F01: a worker killed at one step', () => {
  it.each(STEPS)('$step: loses and duplicates nothing, $left', async ({ store, at, left }) => {
    await using redisProxy = await ChaosProxy.open(rig.redis.options.port ?? 0);
    await using clickhouseProxy = await ChaosProxy.open(
      Number(new URL(rig.env['CLICKHOUSE_URL'] ?? '').port),
    );
    const env = {
      REDIS_URL: redisProxy.redirect(rig.env['REDIS_URL'] ?? ''),
      CLICKHOUSE_URL: clickhouseProxy.redirect(rig.env['CLICKHOUSE_URL'] ?? ''),
    };
    const oracle = new Oracle({ run: 'f01', tenants: await rig.createTenants(1), url: api.url });
    const [tenant] = oracle.tenants;
    if (tenant === undefined) throw new Error('expected a tenant');
    const commit = await loadScript(rig.redis, 'commit');
    const [proxy, pattern] = store === 'redis' ? [redisProxy, commit] : [clickhouseProxy, INSERT_MARK];
    for (let round = 0; round < ROUNDS; round += 1) {
      const worker = rig.startWorker(env);
      await waitFor('the worker to own all shards', async () => (await rig.countLeases())[0] === rig.shards);
      await rig.waitForRest();
      const before = await rig.readShard(tenant.shard);
      const sprung = proxy.arm({
        pattern,
        at,
        action: async () => {
          await worker.kill();
          return 'drop';
        },
      });
      await oracle.send(tenant, { rows: 20, isKeyed: false });
      await sprung;
      const after = await rig.readShard(tenant.shard);
      expect(after.plan !== undefined).toBe(left.isPlanOpen);
      expect(after.done).toBe(left.isPlanOpen ? before.done : before.done + 20);
      await waitFor('the engine to have done what it was told', async () => {
        const [account] = (await rig.readAccounts()).filter(({ shard }) => shard === tenant.shard);
        return account?.stored === before.done - 1 + (left.isStored ? 20 : 0);
      });
      await rig.expireLeases();
    }
    rig.startWorker();
    await rig.waitForRest();
    expect(await judge(rig, oracle, api.url)).toMatchObject({ faults: [], acknowledged: 100, stored: 100 });
  });
});

describe('F21: ClickHouse stores an insert and its answer is lost', () => {
  it('the worker inserts the plan again and duplicates nothing', async () => {
    await using proxy = await ChaosProxy.open(Number(new URL(rig.env['CLICKHOUSE_URL'] ?? '').port));
    const worker = rig.startWorker({ CLICKHOUSE_URL: proxy.redirect(rig.env['CLICKHOUSE_URL'] ?? '') });
    await waitFor('the worker to own all shards', async () => (await rig.countLeases())[0] === rig.shards);
    const oracle = new Oracle({ run: 'f21', tenants: await rig.createTenants(1), url: api.url });
    for (const tenant of oracle.tenants) {
      const sprung = proxy.arm({
        pattern: INSERT_MARK,
        at: 'reply',
        action: async () => Promise.resolve('drop'),
      });
      await oracle.send(tenant, { rows: 20, isKeyed: false });
      await sprung;
      await rig.waitForRest();
    }
    expect(await judge(rig, oracle, api.url)).toMatchObject({ faults: [], acknowledged: 40, stored: 40 });
    expect(worker.output()).toContain('a step failed');
  });
});

describe('F02: workers killed again and again', () => {
  it('three workers, one killed every 0.3–1 s under load: nothing lost, nothing duplicated, lag back within 5 s', async () => {
    const random = createRandom(chooseSeed('F02'));
    const workers: AppProcess[] = [rig.startWorker(), rig.startWorker(), rig.startWorker()];
    const oracle = new Oracle({ run: 'f02', tenants: await rig.createTenants(2), url: api.url });
    await using load = oracle.startLoad({ concurrency: 4, rowsPerRequest: 20, pauseMs: 20, isKeyed: true });
    const until = performance.now() + 15_000;
    let kills = 0;
    while (performance.now() < until) {
      await delay(pickInteger(random, 300, 1_000));
      const victim = pickInteger(random, 0, workers.length - 1);
      await workers[victim]?.kill();
      workers[victim] = rig.startWorker();
      kills += 1;
    }
    await load.stop();
    const stoppedAt = performance.now();
    await rig.waitForRest();
    const lagMs = performance.now() - stoppedAt;
    const verdict = await judge(rig, oracle, api.url);
    process.stdout.write(
      `F02: ${kills} kills, ${JSON.stringify(verdict)}, drained after ${lagMs.toFixed(0)} ms\n`,
    );
    expect(verdict.faults).toEqual([]);
    expect(verdict.stored).toBe(verdict.acknowledged);
    expect(kills).toBeGreaterThan(10);
    expect(lagMs).toBeLessThan(5_000);
    for (const { received, stored, pending } of await rig.readAccounts()) {
      expect({ received, pending }).toEqual({ received: stored, pending: 0 });
    }
  });
});

describe('the accounts of a shard', () => {
  it('received = stored + pending, with no worker alive and after one came back', async () => {
    const oracle = new Oracle({ run: 'accounts', tenants: await rig.createTenants(1), url: api.url });
    for (const tenant of oracle.tenants) await oracle.send(tenant, { rows: 50, isKeyed: true });
    const waiting = await rig.readAccounts();
    expect(waiting.map(({ pending }) => pending)).toEqual([50, 50]);
    for (const { received, stored, pending } of waiting) expect(received).toBe(stored + pending);
    rig.startWorker();
    await rig.waitForRest();
    for (const { received, stored, pending } of await rig.readAccounts()) {
      expect({ received, pending }).toEqual({ received: stored, pending: 0 });
    }
  });
});
