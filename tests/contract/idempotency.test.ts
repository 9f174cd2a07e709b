import { Redis } from 'ioredis';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { waitFor } from '../support/wait.ts';
import { expectError, openContractApi } from './contract-fixture.ts';
import type { ContractApi, TestTenant } from './contract-fixture.ts';

let api: ContractApi;
let tenant: TestTenant;
let redis: Redis;
beforeAll(async () => {
  api = await openContractApi({}, { isProxied: true });
  redis = new Redis(api.stores.redis.url);
  tenant = await api.createTenant('idempotency');
  // The API key is known from here on: what a paused Redis delays is the writing alone.
  await send('warm up', 'a');
});
afterAll(async () => {
  redis.disconnect();
  await api[Symbol.asyncDispose]();
});

async function send(key: string, message: string, of: TestTenant = tenant): Promise<Response> {
  return api.call('POST', '/ingest', {
    key: of.apiKey,
    json: [{ service: 'web', level: 'info', message }],
    headers: { 'idempotency-key': key },
  });
}

async function countStored(message: string): Promise<number> {
  const page = await api.call('GET', `/logs?q="${message}"`, { key: tenant.apiKey });
  return ((await page.json()) as { total: number }).total;
}

/** Lets Redis hold back writes while `work` runs. */
async function withSlowRedis<T>(work: () => Promise<T>): Promise<T> {
  await redis.client('PAUSE', 30_000, 'WRITE');
  try {
    return await work();
  } finally {
    await redis.client('UNPAUSE');
  }
}

describe('contract §3: Idempotency-Key while the first request is running', () => {
  it('409 CONFLICT with Retry-After: 1 for the same body and for another; afterwards the first receipt, byte for byte', async () => {
    const other = await api.createTenant('idempotency-other');
    let first: Promise<Response> | undefined;
    let foreign: Promise<Response> | undefined;
    await withSlowRedis(async () => {
      first = send('k1', 'held up');
      for (const message of ['held up', 'something else']) {
        const second = await send('k1', message);
        expect(second.headers.get('retry-after')).toBe('1');
        expect((await expectError(second, 409, 'CONFLICT')).error).toContain('running');
      }
      // Keys are per project: nobody else's is in use.
      foreign = send('k1', 'held up', other);
    });
    const answer = (await first) as Response;
    const receipt = await answer.text();
    expect([answer.status, answer.headers.get('idempotency-replayed')]).toEqual([200, null]);
    expect((await foreign)?.status).toBe(200);
    const again = await send('k1', 'held up');
    expect([again.status, await again.text()]).toEqual([200, receipt]);
    expect(again.headers.get('idempotency-replayed')).toBe('true');
    await expectError(await send('k1', 'something else'), 422, 'IDEMPOTENCY_MISMATCH');
  });

  it('a request that failed leaves its key free: 400, then 200', async () => {
    const bad = await api.call('POST', '/ingest', {
      key: tenant.apiKey,
      json: [{ service: 'web' }],
      headers: { 'idempotency-key': 'k2' },
    });
    await expectError(bad, 400, 'VALIDATION_ERROR');
    expect((await send('k2', 'second try')).status).toBe(200);
  });
});

describe('contract §3: Idempotency-Key over an ambiguous failure', () => {
  it('F19: the answer of Redis is lost: 503 with Retry-After, nothing resent by the client; the retry gets the receipt, stored once', async () => {
    const { redisProxy } = api;
    const dropped = redisProxy?.arm({
      pattern: `idem:${tenant.projectId}`,
      at: 'reply',
      action: async () => Promise.resolve('drop'),
    });
    const message = 'answer lost on the way';
    await expectError(await send('k3', message), 503, 'UNAVAILABLE');
    await dropped;
    const again = await waitFor('the connection to be back', async () => {
      const answer = await send('k3', message);
      return answer.status === 200 && answer;
    });
    expect(again.headers.get('idempotency-replayed')).toBe('true');
    await waitFor('the entry to be found', async () => (await countStored('answer lost on the way')) > 0);
    expect(await countStored('answer lost on the way')).toBe(1);
  });
});
