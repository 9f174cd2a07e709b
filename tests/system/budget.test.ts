import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { waitFor } from '../support/wait.ts';
import { judge } from './support/judge.ts';
import { Oracle } from './support/oracle.ts';
import { Rig } from './support/rig.ts';
import type { ApiProcess } from './support/rig.ts';

const MEBIBYTE = 1024 * 1024;

let rig: Rig;
let api: ApiProcess;

beforeAll(async () => {
  rig = await Rig.open({
    shards: 2,
    maxmemoryBytes: 64 * MEBIBYTE,
    // The smallest there is: 8 MiB a shard.
    env: { REDIS_BUDGET_BYTES: String(16 * MEBIBYTE) },
  });
  await rig.createTenants(1);
  rig.startWorker();
  // What it has not read stays in the streams, and counts.
  rig.startAlertWorker();
  api = await rig.startApi();
});
afterAll(async () => rig[Symbol.asyncDispose]());

describe('F20: ClickHouse down for long with a small budget', () => {
  it('answers 200, then 429 to who has most waiting, then 503 to all; drains when it is back, and nothing is lost', async () => {
    const oracle = new Oracle({
      run: 'f20',
      tenants: await rig.createTenants(4),
      url: api.url,
      noiseBytes: 4_000,
    });
    await rig.killClickHouse();
    await using load = oracle.startLoad({ concurrency: 16, rowsPerRequest: 25, pauseMs: 20, isKeyed: true });
    await waitFor('everybody to be refused', () => (oracle.statuses.get(503) ?? 0) > 20, 60_000);
    expect([...oracle.statuses.keys()]).toEqual([200, 429, 503]);
    expect(oracle.statuses.get(200)).toBeGreaterThan(50);
    expect(oracle.unannounced).toBe(0);
    // What is kept back for accounts, cursors and queues is untouched.
    const info = await rig.redis.info('memory');
    expect(Number(/used_memory:(\d+)/.exec(info)?.[1])).toBeLessThan(40 * MEBIBYTE);
    expect(await rig.createTenants(1)).toHaveLength(2);

    await rig.startClickHouse();
    const before = oracle.acknowledgedRows;
    await waitFor('entries to be acknowledged again', () => oracle.acknowledgedRows > before + 500, 60_000);
    await load.stop();
    await rig.waitForRest();
    const verdict = await judge(rig, oracle, api.url);
    process.stdout.write(`F20: ${JSON.stringify(verdict)} ${JSON.stringify([...oracle.statuses])}\n`);
    expect(verdict).toMatchObject({ faults: [], lost: 0, duplicated: 0, stored: verdict.acknowledged });
    for (const { received, stored, pending } of await rig.readAccounts())
      expect({ received, pending }).toEqual({ received: stored, pending: 0 });
  });
});
