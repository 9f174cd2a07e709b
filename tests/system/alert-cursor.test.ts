import { findFreePort } from '@logpond/standalone/store-process';
import { shardKeys } from '@logpond/db/shard-map';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { AppProcess } from '../support/app-process.ts';
import { waitFor } from '../support/wait.ts';
import { AlertApi } from './support/alert-api.ts';
import type { RuleDraft } from './support/alert-api.ts';
import { judge } from './support/judge.ts';
import { readMetric } from './support/metrics.ts';
import { Oracle } from './support/oracle.ts';
import { Rig } from './support/rig.ts';
import type { ApiProcess, Tenant } from './support/rig.ts';
import { createTenants } from './support/rig-tenants.ts';

const MIB = 1024 ** 2;
/** The least that is allowed. One shard has all of it, and nothing is admitted above 80 %. */
const BUDGET_BYTES = 16 * MIB;
const KEYS = shardKeys('lp', 0);
/** Hardly compressed: about 250 KB a request. */
const REQUEST = { rows: 20, isKeyed: false, ambiguousMax: 1 } as const;
const NOISE_BYTES = 16_000;
const REQUESTS_MAX = 400;

const COUNTS_ALL: RuleDraft = {
  name: 'All',
  enabled: true,
  condition: { field: 'level', operator: 'gte', value: 'debug', threshold: 1_000_000_000, timeWindow: '1d' },
  notifications: [],
};

let rig: Rig;
let worker: AppProcess;
let api: ApiProcess;
let metricsPort: number;

beforeAll(async () => {
  rig = await Rig.open({ shards: 1, env: { REDIS_BUDGET_BYTES: String(BUDGET_BYTES) } });
  metricsPort = await findFreePort();
  worker = rig.startWorker();
  api = await rig.startApi({ METRICS_PORT: String(metricsPort) });
});
afterAll(async () => rig[Symbol.asyncDispose]());

/** Bytes that the stream holds, by the product's own account. */
async function readHeldBytes(): Promise<number> {
  return (await rig.readShard(0)).heldBytes;
}

async function readOffsets(): Promise<{ first: number; alert: number; next: number }> {
  const [entry] = await rig.redis.xrange(KEYS.log, '-', '+', 'COUNT', 1);
  const [alert, next] = (await rig.redis.hmget(KEYS.state, 'alert:done', 'next')).map(Number);
  return { first: Number.parseInt(entry?.[0] ?? '0', 10), alert: alert ?? 0, next: next ?? 0 };
}

/**
 * Sends until a batch is refused; returns how many were taken. ClickHouse keeps up: a backlog of its own would get the
 * project 429.
 */
async function sendUntilRefused(oracle: Oracle, tenant: Tenant): Promise<number> {
  for (let taken = 0; taken < REQUESTS_MAX; taken += 1) {
    await waitFor('little to wait for ClickHouse', async () => {
      const { next, done } = await rig.readShard(tenant.shard);
      return next - done <= 3 * REQUEST.rows;
    });
    const { outcomes } = await oracle.send(tenant, REQUEST);
    if (outcomes[0] !== 'acknowledged') return taken;
  }
  return REQUESTS_MAX;
}

describe('F55: the alert worker stops', () => {
  it('nothing it has not seen is trimmed; at the mark 503 and a metric; when it is back all flows again', async () => {
    const [tenant] = await createTenants(
      {
        REDIS_URL: rig.env['REDIS_URL'] ?? '',
        KEY_PREFIX: 'lp',
        SHARDS: 1,
        REDIS_BUDGET_BYTES: BUDGET_BYTES,
      },
      1,
    );
    if (tenant === undefined) throw new RangeError('expected a tenant');
    const ruleId = await new AlertApi(api.url).createRule(tenant, COUNTS_ALL);
    const oracle = new Oracle({ run: 'f55', tenants: [tenant], url: api.url, noiseBytes: NOISE_BYTES });
    const alert = rig.startAlertWorker();
    // While it follows, the stream takes more than its whole budget.
    let passedBytes = 0;
    while (passedBytes < BUDGET_BYTES) {
      await waitFor('room in the stream', async () => (await readHeldBytes()) < BUDGET_BYTES * 0.55);
      const { outcomes } = await oracle.send(tenant, REQUEST);
      expect(outcomes).toEqual(['acknowledged']);
      passedBytes = Number(await rig.redis.hget(KEYS.state, 'bytesIn'));
    }
    await rig.waitForRest();
    await waitFor('the alert cursor at the end', async () => {
      const { alert: cursor, next } = await readOffsets();
      return cursor === next;
    });
    await alert.kill();
    const { next: stoppedAt } = await readOffsets();

    // Streams are trimmed at marks, at most one a second: this one must not be replaced by a later one.
    const second = Math.floor(Date.now() / 1_000);
    await waitFor('the next second', () => Math.floor(Date.now() / 1_000) > second);

    const taken = await sendUntilRefused(oracle, tenant);
    expect(taken).toBeLessThan(REQUESTS_MAX);
    await rig.waitForRest();
    // What ClickHouse has long had stays, from the first entry that the alert worker has not seen.
    await waitFor(
      'all that may be trimmed to be gone',
      async () => (await readOffsets()).first === stoppedAt,
    );
    // Room that the trimmed part left is used; what comes then stays, so there is none any more.
    await sendUntilRefused(oracle, tenant);
    await rig.waitForRest();
    expect(await sendUntilRefused(oracle, tenant)).toBeLessThanOrEqual(1);
    expect((await readOffsets()).first).toBe(stoppedAt);
    expect([...oracle.statuses.keys()]).toEqual([200, 503]);
    expect(oracle.unannounced).toBe(0);
    const refused = await readMetric(metricsPort, 'logpond_api_refused_batches_total');
    await waitFor('the log to name what holds the stream', () =>
      worker.output().includes('"slowest":"alert"'),
    );
    expect(refused.get('reason="budget"')).toBeGreaterThan(0);

    rig.startAlertWorker();
    await waitFor('a batch to be taken', async () => {
      const { outcomes } = await oracle.send(tenant, REQUEST);
      return outcomes[0] === 'acknowledged';
    });
    await rig.waitForRest();
    const verdict = await judge(rig, oracle, api.url);
    process.stdout.write(
      `F55: ${taken} batches taken without the alert worker, ${JSON.stringify(verdict)}\n`,
    );
    expect(verdict).toMatchObject({ faults: [], stored: verdict.acknowledged });
    // What came while it was stopped was kept for it, and counted when it was back, once.
    await waitFor('all to be counted', async () => {
      const [stored] = await rig.selectRows<{ entries: string }>(
        'SELECT toString(count()) AS entries FROM logs WHERE project_id = {project:UUID}',
        { project: tenant.projectId },
      );
      return (await rig.redis.hget(KEYS.window(ruleId), 'counted')) === stored?.entries;
    });
  });
});
