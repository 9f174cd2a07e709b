import { readFileSync } from 'node:fs';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import type { AppProcess } from '../support/app-process.ts';
import { waitFor } from '../support/wait.ts';
import { ChaosProxy } from './support/chaos-proxy.ts';
import { judge } from './support/judge.ts';
import { Oracle } from './support/oracle.ts';
import { Rig } from './support/rig.ts';
import type { ApiProcess, Tenant } from './support/rig.ts';
import { loadScript } from './support/scripts.ts';

let rig: Rig;
let api: ApiProcess;

beforeAll(async () => {
  rig = await Rig.open({ shards: 6 });
  await rig.createTenants(1);
  const worker = rig.startWorker();
  api = await rig.startApi();
  await worker.stop();
});
afterEach(async () => rig.killWorkers());
afterAll(async () => rig[Symbol.asyncDispose]());

function first(tenants: readonly Tenant[]): Tenant {
  const [tenant] = tenants;
  if (tenant === undefined) throw new RangeError('expected at least one tenant');
  return tenant;
}

async function waitForLeases(counts: number[], timeoutMs?: number): Promise<void> {
  const wanted = JSON.stringify(counts);
  await waitFor(
    `leases ${wanted}`,
    async () => JSON.stringify((await rig.countLeases()).toSorted((a, b) => a - b)) === wanted,
    timeoutMs,
  );
}

describe('sharing', () => {
  it('three workers hold two of six shards each; those of a killed and of a stopped one go to the others', async () => {
    const workers = [rig.startWorker(), rig.startWorker(), rig.startWorker()];
    await waitForLeases([2, 2, 2]);

    const killedAt = performance.now();
    await workers[0]?.kill();
    await waitForLeases([3, 3], 10_000);
    const takeoverMs = performance.now() - killedAt;

    const stoppedAt = performance.now();
    expect(await workers[1]?.stop()).toBe(0);
    // Before anybody else could have seen a lease run out.
    expect((await rig.countLeases()).reduce((sum, count) => sum + count, 0)).toBeGreaterThanOrEqual(3);
    await waitForLeases([6], 10_000);
    const handoverMs = performance.now() - stoppedAt;
    process.stdout.write(`takeover ${takeoverMs.toFixed(0)} ms, handover ${handoverMs.toFixed(0)} ms\n`);

    const oracle = new Oracle({ run: 'sharing', tenants: await rig.createTenants(1), url: api.url });
    await Promise.all(oracle.tenants.map(async (tenant) => oracle.send(tenant, { rows: 10, isKeyed: true })));
    await rig.waitForRest();
    expect(await judge(rig, oracle, api.url)).toMatchObject({ faults: [], stored: 60 });
  });

  it('a worker stopped under load leaves no plan and no lease, and exits with 0', async () => {
    const worker = rig.startWorker();
    await waitForLeases([6]);
    const oracle = new Oracle({ run: 'graceful', tenants: await rig.createTenants(1), url: api.url });
    await using load = oracle.startLoad({ concurrency: 4, rowsPerRequest: 20, pauseMs: 10, isKeyed: true });
    await waitFor('entries to be stored', async () =>
      (await rig.readShards()).some(({ done, plan }) => done > 1 && plan !== undefined),
    );
    expect(await worker.stop()).toBe(0);
    const states = await rig.readShards();
    expect(states.map(({ plan, lease }) => ({ plan, lease }))).toEqual(
      states.map(() => ({ plan: undefined, lease: undefined })),
    );
    await load.stop();
    for (const { received, stored, pending } of await rig.readAccounts())
      expect(received).toBe(stored + pending);
    rig.startWorker();
    await rig.waitForRest();
    expect((await judge(rig, oracle, api.url)).faults).toEqual([]);
  });
});

/** Waits until a process is stopped by a signal, as its failpoint does. */
async function waitUntilPaused(worker: AppProcess): Promise<void> {
  await waitFor('the worker to pause', () => {
    const stat = readFileSync(`/proc/${worker.child.pid}/stat`, 'utf8');
    // The field after the name in brackets, which may hold anything, is the state.
    return /^.*\) T/s.test(stat);
  });
}

describe('F03: a worker paused for longer than its lease', () => {
  it.each(['W3.before', 'W4.before', 'W4.after', 'W6.before'])(
    'at %s, resumed after its successor stored the same entries: commits nothing, duplicates nothing',
    async (point) => {
      const paused = rig.startWorker({ FAILPOINT: `${point}:stop` });
      await waitForLeases([6]);
      const oracle = new Oracle({ run: 'f03', tenants: await rig.createTenants(1), url: api.url });
      const tenant = first(oracle.tenants);
      const { fence } = await rig.readShard(tenant.shard);
      await oracle.send(tenant, { rows: 20, isKeyed: false });
      await waitUntilPaused(paused);
      await rig.expireLeases();
      rig.startWorker();
      await waitFor('the successor to commit', async () => {
        const state = await rig.readShard(tenant.shard);
        return Number.parseInt(state.fence, 10) > Number.parseInt(fence, 10) && state.done === state.next;
      });
      const { done } = await rig.readShard(tenant.shard);
      paused.child.kill('SIGCONT');
      await waitFor('the paused worker to notice', () => paused.output().includes('gave a shard back'));
      await oracle.send(tenant, { rows: 20, isKeyed: false });
      await rig.waitForRest();
      expect((await rig.readShard(tenant.shard)).done).toBe(done + 20);
      const verdict = await judge(rig, oracle, api.url);
      expect(verdict).toMatchObject({ faults: [], acknowledged: 40, stored: 40 });
      for (const { received, stored } of await rig.readAccounts()) expect(received).toBe(stored);
    },
  );

  it('in the middle of a load is fenced: nothing lost, nothing duplicated', async () => {
    const paused = rig.startWorker();
    await waitForLeases([6]);
    rig.startWorker();
    await waitForLeases([3, 3]);
    const oracle = new Oracle({ run: 'f03-load', tenants: await rig.createTenants(1), url: api.url });
    await using load = oracle.startLoad({ concurrency: 4, rowsPerRequest: 20, pauseMs: 10, isKeyed: true });
    await waitFor('entries to be stored', async () => (await rig.readShards()).every(({ done }) => done > 1));
    paused.child.kill('SIGSTOP');
    await waitForLeases([6]);
    paused.child.kill('SIGCONT');
    await waitForLeases([3, 3]);
    await load.stop();
    await rig.waitForRest();
    const verdict = await judge(rig, oracle, api.url);
    expect(verdict.faults).toEqual([]);
    expect(verdict.stored).toBe(verdict.acknowledged);
  });
});

describe('F04: two workers on one shard', () => {
  it.each(['plan', 'commit'] as const)('the %s of the one that was replaced is refused', async (name) => {
    await using proxy = await ChaosProxy.open(rig.redis.options.port ?? 0);
    rig.startWorker({ REDIS_URL: proxy.redirect(rig.env['REDIS_URL'] ?? '') });
    await waitForLeases([6]);
    const oracle = new Oracle({ run: `f04-${name}`, tenants: await rig.createTenants(1), url: api.url });
    const tenant = first(oracle.tenants);
    const { fence } = await rig.readShard(tenant.shard);
    const sprung = proxy.arm({
      pattern: await loadScript(rig.redis, name),
      at: 'request',
      action: async () => {
        await rig.expireLeases();
        rig.startWorker();
        await waitFor('another worker to own the shard', async () => {
          return Number.parseInt((await rig.readShard(tenant.shard)).fence, 10) > Number.parseInt(fence, 10);
        });
        return 'forward';
      },
    });
    await oracle.send(tenant, { rows: 20, isKeyed: false });
    // 0 is the scripts' answer to an owner that was replaced.
    expect((await sprung).toString()).toContain(':0\r\n');
    await rig.waitForRest();
    expect(await judge(rig, oracle, api.url)).toMatchObject({ faults: [], acknowledged: 20, stored: 20 });
  });
});
