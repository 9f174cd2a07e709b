import { Redis } from 'ioredis';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { waitFor } from '../support/wait.ts';
import { PASSWORD, expectError, expectJson, openContractApi } from './contract-fixture.ts';
import type { ContractApi, TestTenant } from './contract-fixture.ts';

const json = [{ service: 'web', level: 'info', message: 'm' }];

let api: ContractApi;
let tenant: TestTenant;
let redis: Redis;
beforeAll(async () => {
  api = await openContractApi();
  tenant = await api.createTenant('refuses');
  redis = new Redis(api.stores.redis.url);
});
afterAll(async () => {
  redis.disconnect();
  await api[Symbol.asyncDispose]();
});

async function ingest(headers: Record<string, string> = {}): Promise<Response> {
  return api.call('POST', '/ingest', { key: tenant.apiKey, json, headers });
}

/** 503 with a whole number of seconds, nothing of Redis' own text. */
async function expectRefusals(): Promise<void> {
  const login = { email: tenant.email, password: PASSWORD };
  const session = tenant.sessionToken;
  const answers = [
    await ingest(),
    await ingest({ 'idempotency-key': 'k' }),
    await api.call('POST', '/auth/login', { json: login }),
    await api.call('POST', '/organizations', { session, json: { name: 'New' } }),
  ];
  for (const answer of answers) {
    const { error } = await expectError(answer, 503, 'UNAVAILABLE');
    expect(error).not.toMatch(/OOM|READONLY|maxmemory|replica|script|redis/i);
  }
}

async function expectService(): Promise<void> {
  await waitFor('batches to be taken again', async () => (await ingest()).status === 200);
  expect((await ingest({ 'idempotency-key': 'k' })).status).toBe(200);
}

describe('pipeline §7: what Redis refuses is 503 with Retry-After, never 500', () => {
  it('F13: OOM at maxmemory, for plain commands and inside scripts; what only reads goes on', async () => {
    const [, maxmemory] = (await redis.config('GET', 'maxmemory')) as [string, string];
    await redis.config('SET', 'maxmemory', '1mb');
    await expectRefusals();
    await expectJson(await api.call('GET', '/organizations', { session: tenant.sessionToken }));
    await expectJson(await api.call('GET', '/logs', { key: tenant.apiKey }));
    expect((await api.call('GET', '/health')).status).toBe(200);
    await redis.config('SET', 'maxmemory', maxmemory);
    await expectService();
  });

  it('F18: READONLY of a master that became a replica', async () => {
    await redis.replicaof('127.0.0.1', '1');
    await expectRefusals();
    await redis.replicaof('NO', 'ONE');
    expect(await redis.role()).toContain('master');
    await expectService();
  });

  it('no answer in time', async () => {
    await redis.client('PAUSE', 60_000, 'WRITE');
    const startedAt = performance.now();
    await expectError(await ingest(), 503, 'UNAVAILABLE');
    // Two tries of 2 s at the most (the script by its hash, then whole).
    expect(performance.now() - startedAt).toBeLessThan(30_000);
    await redis.client('UNPAUSE');
    await expectService();
  });
});
