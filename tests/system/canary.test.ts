import { findFreePort } from '@logpond/standalone/store-process';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { waitFor } from '../support/wait.ts';
import { FakeClickHouse } from './support/fake-clickhouse.ts';
import { readMetric } from './support/metrics.ts';
import { Rig } from './support/rig.ts';

const SHARDS = 2;
/** A canary that comes every second is missing after 5 s. */
const CANARY = { CANARY_INTERVAL_MS: '1000' };
const MISSING = 'the canary is missing';

let rig: Rig;

beforeAll(async () => {
  rig = await Rig.open({ shards: SHARDS });
  const worker = rig.startWorker();
  await waitFor('the stores to be prepared', async () => (await rig.countLeases())[0] === SHARDS);
  await worker.stop();
});
afterEach(async () => rig.killWorkers());
afterAll(async () => rig[Symbol.asyncDispose]());

async function readMissing(port: number): Promise<number> {
  return (await readMetric(port, 'logpond_ingest_canary_missing_total')).get('') ?? 0;
}

/** Canaries that are stored, and how many different ones, by shard. */
async function countCanaries(): Promise<{ shard: number; stored: number; different: number }[]> {
  const rows = await rig.selectRows<{ shard: number; stored: string; different: string }>(
    `SELECT shard, count() AS stored, uniqExact(seq) AS different FROM logs
     WHERE service = 'logpond' AND message = 'canary' GROUP BY shard ORDER BY shard`,
  );
  return rows.map(({ shard, stored, different }) => ({
    shard,
    stored: Number(stored),
    different: Number(different),
  }));
}

describe('F56: an entry of its own through the whole pipeline', () => {
  it('is sent for every shard again and again, found stored once, and its time is a metric', async () => {
    const port = await findFreePort();
    const worker = rig.startWorker({ ...CANARY, METRICS_PORT: String(port) });
    const counts = await waitFor('three canaries of each shard', async () => {
      const found = await countCanaries();
      return found.length === SHARDS && found.every(({ stored }) => stored >= 3) && found;
    });
    for (const { stored, different } of counts) expect(stored).toBe(different);
    const seconds = await readMetric(port, 'logpond_ingest_canary_seconds');
    expect([...seconds.keys()].toSorted()).toEqual(['shard="0"', 'shard="1"']);
    for (const value of seconds.values()) expect(value).toBeGreaterThan(0);
    expect(await readMissing(port)).toBe(0);
    expect(worker.output()).not.toContain(MISSING);
  });

  it('is told missing, by metric and log, when ClickHouse says that it is stored and drops it', async () => {
    await using fake = await FakeClickHouse.open(rig.env['CLICKHOUSE_URL'] ?? '');
    const port = await findFreePort();
    const env = { ...CANARY, METRICS_PORT: String(port), CLICKHOUSE_URL: fake.url, AUDIT_AFTER_MS: '8000' };
    const worker = rig.startWorker(env);
    await waitFor('the first canaries', async () => (await countCanaries()).length === SHARDS);
    fake.expectInserts('say done, drop');
    await waitFor('one to be missed', async () => (await readMissing(port)) > 0, 30_000);
    expect(worker.output()).toContain(MISSING);
    const seconds = [...(await readMetric(port, 'logpond_ingest_canary_seconds')).values()];
    expect(Math.max(...seconds)).toBeGreaterThanOrEqual(5);
    // The auditor finds it out too, and puts it in.
    await waitFor(
      'the canary to arrive after all',
      async () => Math.max(...(await readMetric(port, 'logpond_ingest_canary_seconds')).values()) < 5,
      30_000,
    );
    for (const { stored, different } of await countCanaries()) expect(stored).toBe(different);
  });
});
