import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { shardKeys } from '@logpond/db/shard-map';
import { waitFor } from '../support/wait.ts';
import { judge } from './support/judge.ts';
import { Oracle } from './support/oracle.ts';
import { Rig } from './support/rig.ts';
import type { ApiProcess, Tenant } from './support/rig.ts';

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;

let rig: Rig;
let api: ApiProcess;

beforeAll(async () => {
  rig = await Rig.open({ shards: 2, hasRedisClock: true });
  await rig.createTenants(1);
  rig.startWorker();
  rig.startWorker();
  api = await rig.startApi();
});
afterAll(async () => rig[Symbol.asyncDispose]());

/** The clock jumps there and back while entries arrive. */
const JUMPS = [
  { name: '60 s forward', shiftMs: MINUTE_MS },
  { name: '1 h back', shiftMs: -HOUR_MS },
  { name: '24 h forward', shiftMs: 24 * HOUR_MS },
];

describe("F34: the clock of Redis's machine jumps", () => {
  it.each(JUMPS)(
    '$name: offsets stay dense, the fence holds, nothing is lost or doubled',
    async ({ shiftMs }) => {
      const oracle = new Oracle({ run: 'f34', tenants: await rig.createTenants(1), url: api.url });
      await using load = oracle.startLoad({ concurrency: 3, rowsPerRequest: 20, pauseMs: 10, isKeyed: true });
      await makeProgress();
      rig.setRedisClock(shiftMs);
      await makeProgress();
      rig.setRedisClock(0);
      await makeProgress();
      await load.stop();
      expect([...oracle.statuses.keys()].filter((status) => status !== 503)).toEqual([200]);
      await rig.waitForRest();
      const verdict = await judge(rig, oracle, api.url);
      process.stdout.write(`F34: ${JSON.stringify(verdict)} ${JSON.stringify([...oracle.statuses])}\n`);
      expect(verdict).toMatchObject({ faults: [], lost: 0, duplicated: 0, stored: verdict.acknowledged });
      for (const { received, stored, pending } of await rig.readAccounts())
        expect({ received, pending }).toEqual({ received: stored, pending: 0 });
    },
  );

  it('a receipt is kept for its hour by that clock: replayed after a minute and after a step back, forgotten after a day', async () => {
    const [tenant] = await rig.createTenants(1);
    if (tenant === undefined) throw new RangeError('expected a tenant');
    const first = await sendOnce(tenant);
    expect(first).toMatchObject({ status: 200, isReplayed: false });
    rig.setRedisClock(MINUTE_MS);
    expect(await sendOnce(tenant)).toEqual({ ...first, isReplayed: true });
    rig.setRedisClock(-HOUR_MS);
    expect(await sendOnce(tenant)).toEqual({ ...first, isReplayed: true });
    rig.setRedisClock(24 * HOUR_MS);
    expect(await sendOnce(tenant)).toMatchObject({ status: 200, isReplayed: false });
    rig.setRedisClock(0);
    await rig.waitForRest();
    const ids = await rig.selectRows<{ entries: string }>(
      'SELECT count() AS entries FROM logs WHERE project_id = {project:UUID}',
      { project: tenant.projectId },
    );
    expect(ids).toEqual([{ entries: '2' }]);
  });

  it('readers of the live tail keep their replay window, which is measured by our own clock', async () => {
    const [tenant] = await rig.createTenants(1);
    if (tenant === undefined) throw new RangeError('expected a tenant');
    const { log } = shardKeys('lp', tenant.shard);
    await sendOnce(tenant);
    await rig.waitForRest();
    const { next } = await rig.readShard(tenant.shard);
    const oldest = (await rig.redis.xrange(log, '-', '+', 'COUNT', 1))[0]?.[0];
    expect(oldest).toBeDefined();
    rig.setRedisClock(24 * HOUR_MS);
    // Housekeeping trims at its own pace; two more commits leave it no excuse.
    for (let commit = 0; commit < 2; commit += 1) await sendOnce(tenant, crypto.randomUUID());
    await makeProgressFrom(tenant.shard, next);
    expect((await rig.redis.xrange(log, '-', '+', 'COUNT', 1))[0]?.[0]).toBe(oldest);
    rig.setRedisClock(0);
  });
});

/** Waits until each shard has stored something that was not there yet. */
async function makeProgress(): Promise<void> {
  const before = await rig.readShards();
  await waitFor(
    'both shards to be stored further',
    async () => {
      const now = await rig.readShards();
      return now.every(({ done }, shard) => done > (before[shard]?.next ?? 0) + 100);
    },
    40_000,
  );
}

async function makeProgressFrom(shard: number, offset: number): Promise<void> {
  await waitFor('the shard to be stored further', async () => (await rig.readShard(shard)).done > offset);
}

async function sendOnce(
  tenant: Tenant,
  key = 'clock',
): Promise<{ status: number; receipt: string; isReplayed: boolean }> {
  return waitFor('the batch to be taken', async () => {
    const answer = await fetch(`${api.url}/api/v1/ingest`, {
      method: 'POST',
      headers: {
        'Content-Type': 'application/json',
        'X-API-Key': tenant.apiKey,
        'Idempotency-Key': key,
      },
      body: JSON.stringify({ logs: [{ service: 's', level: 'info', message: 'clock' }] }),
    });
    const receipt = await answer.text();
    const isReplayed = answer.headers.get('idempotency-replayed') === 'true';
    // Leases run out by that clock; meanwhile nothing is refused, but a restart of Redis would be.
    return answer.status !== 503 && { status: answer.status, receipt, isReplayed };
  });
}
