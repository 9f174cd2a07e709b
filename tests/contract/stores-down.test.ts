import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { PASSWORD, expectError, expectJson, openContractApi } from './contract-fixture.ts';
import type { ContractApi, TestTenant } from './contract-fixture.ts';

let api: ContractApi;
let tenant: TestTenant;
beforeAll(async () => {
  api = await openContractApi();
  tenant = await api.createTenant('down');
});
afterAll(async () => api[Symbol.asyncDispose]());

const json = [{ service: 'web', level: 'info', message: 'm' }];

describe('contract §1: a fault of a store is 503 with Retry-After, never 500', () => {
  it('without ClickHouse batches are taken, searches get 503, and the process is not ready but alive', async () => {
    await expectJson(await api.call('POST', '/ingest', { key: tenant.apiKey, json }));
    await api.stores.clickhouse.stop();
    await expectJson(await api.call('POST', '/ingest', { key: tenant.apiKey, json }));
    for (const path of ['/logs', '/logs/aggregated', '/logs/0199a1b2-0000-8000-8000-000000000000']) {
      await expectError(await api.call('GET', path, { key: tenant.apiKey }), 503, 'UNAVAILABLE');
    }
    const ready = await api.call('GET', '/health/ready');
    expect(await expectJson(ready, 503)).toEqual({
      status: 'unavailable',
      checks: { redis: 'ok', clickhouse: 'unavailable' },
    });
    expect((await api.call('GET', '/health')).status).toBe(200);
  });

  it('without Redis every route that needs it gets 503, a known API key included, and health stays', async () => {
    await api.stores.redis.stop();
    const session = tenant.sessionToken;
    const login = { email: tenant.email, password: PASSWORD };
    for (let round = 0; round < 3; round += 1) {
      await expectError(await api.call('POST', '/ingest', { key: tenant.apiKey, json }), 503, 'UNAVAILABLE');
      await expectError(await api.call('GET', '/organizations', { session }), 503, 'UNAVAILABLE');
      await expectError(await api.call('POST', '/auth/login', { json: login }), 503, 'UNAVAILABLE');
    }
    const ready = await expectJson<{ checks: { redis: string } }>(
      await api.call('GET', '/health/ready'),
      503,
    );
    expect(ready.checks.redis).not.toBe('ok');
    expect((await api.call('GET', '/health/live')).status).toBe(200);
  });
});
