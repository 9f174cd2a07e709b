import { readProjectStats } from '@logpond/db/project-stats';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { waitFor } from '../support/wait.ts';
import { expectError, expectJson, openContractApi } from './contract-fixture.ts';
import type { ContractApi, TestTenant } from './contract-fixture.ts';

const MINUTE_MS = 60_000;
const DAY_MS = 1_440 * MINUTE_MS;

type Stats = {
  entries: number;
  bytes: number;
  oldest: string | null;
  newest: string | null;
  backlog: { entries: number; seconds: number };
};

let api: ContractApi;
let tenant: TestTenant;
beforeAll(async () => {
  api = await openContractApi();
  tenant = await api.createTenant('stats');
});
afterAll(async () => api[Symbol.asyncDispose]());

async function readStats(of: TestTenant = tenant): Promise<Stats> {
  return expectJson<Stats>(await api.call('GET', `/projects/${of.projectId}/stats`, { key: of.apiKey }));
}

describe('contract §4: GET /projects/:id/stats', () => {
  it('of an empty project everything is zero or null', async () => {
    const nothing = { entries: 0, bytes: 0, oldest: null, newest: null, backlog: { entries: 0, seconds: 0 } };
    expect(await readStats()).toEqual(nothing);
    const bySession = await api.call('GET', `/projects/${tenant.projectId}/stats`, {
      session: tenant.sessionToken,
    });
    expect(await expectJson(bySession)).toEqual(nothing);
  });

  it('counts exactly what is within the retention, whatever hour it cuts through, and nobody else’s entries', async () => {
    const nowMs = Date.now();
    // Every 25 min over 17 days, so that every hour holds some, in two projects.
    const times = Array.from({ length: 1_000 }, (_, n) => nowMs - n * 25 * MINUTE_MS);
    const other = await api.createTenant('stats-other');
    for (const of of [tenant, other]) {
      const json = times.map((time) => ({
        service: 'web',
        level: 'info',
        message: 'x'.repeat(200),
        time: new Date(time).toISOString(),
      }));
      expect((await api.call('POST', '/ingest', { key: of.apiKey, json })).status).toBe(200);
    }
    const stats = await waitFor('all to be stored', async () => {
      const read = await readStats();
      return read.entries === times.length && read.backlog.entries === 0 && read;
    });
    const iso = (ms: number | undefined): string => new Date(ms ?? 0).toISOString();
    expect([stats.newest, stats.oldest]).toEqual([iso(times[0]), iso(times.at(-1))]);
    expect(stats.bytes).toBeGreaterThan(times.length);
    expect(stats.bytes).toBeLessThan(times.length * 1_000);
    for (const retentionDays of [1, 3, 10, 16]) {
      for (const shiftMs of [0, 17 * MINUTE_MS, 31 * MINUTE_MS, 59 * MINUTE_MS]) {
        const atMs = nowMs + shiftMs;
        const project = { projectId: tenant.projectId, retentionDays };
        const read = await readProjectStats(api.deps.clickhouse, project, atMs);
        const kept = times.filter((time) => time >= atMs - retentionDays * DAY_MS);
        expect([retentionDays, shiftMs, read.entries, read.oldest]).toEqual([
          retentionDays,
          shiftMs,
          kept.length,
          iso(kept.at(-1)),
        ]);
      }
    }
  });

  it("404 for another tenant's project, 403 for a key without the scope query", async () => {
    const other = await api.createTenant('stats-third');
    const path = `/projects/${tenant.projectId}/stats`;
    await expectError(await api.call('GET', path, { key: other.apiKey }), 404, 'NOT_FOUND');
    await expectError(await api.call('GET', path, { session: other.sessionToken }), 404, 'NOT_FOUND');
    const { apiKey } = await api.deps.apiKeys.create({ kind: 'system' }, tenant.projectId, {
      name: 'i',
      scopes: ['ingest'],
    });
    const narrow = await expectError(await api.call('GET', path, { key: apiKey }), 403, 'INSUFFICIENT_SCOPE');
    expect(narrow.error).toContain('query');
  });

  it('says what waits while ClickHouse is away, and is itself 503 then', async () => {
    await api.stores.clickhouse.stop();
    const json = [{ service: 'web', level: 'info', message: 'm' }];
    for (let n = 0; n < 3; n += 1) await api.call('POST', '/ingest', { key: tenant.apiKey, json });
    const backlog = await api.deps.stream.readBacklog(tenant.projectId);
    expect(backlog.entries).toBe(3);
    await expectError(
      await api.call('GET', `/projects/${tenant.projectId}/stats`, { key: tenant.apiKey }),
      503,
      'UNAVAILABLE',
    );
  });
});
