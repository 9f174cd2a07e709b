import { randomBytes } from 'node:crypto';
import { Redis } from 'ioredis';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { waitFor } from '../support/wait.ts';
import { PASSWORD, expectError, expectJson, openContractApi } from './contract-fixture.ts';
import type { CallInit, ContractApi, TestTenant } from './contract-fixture.ts';

const small = [{ service: 'web', level: 'info', message: 'small' }];
/** A megabyte that does not compress: about 1/10 of where the shares begin to count. */
const LARGE = JSON.stringify(
  Array.from({ length: 1_000 }, () => ({
    service: 'flood',
    level: 'info',
    message: randomBytes(750).toString('base64'),
  })),
);
/** A megabyte that does. */
const FLAT = JSON.stringify(
  Array.from({ length: 1_000 }, () => ({ service: 'flood', level: 'info', message: 'x'.repeat(1_000) })),
);
const BUDGET_BYTES = 16_777_216;

let api: ContractApi;
let flooder: TestTenant;
let quiet: TestTenant;
let tenants = 0;
beforeAll(async () => {
  api = await openContractApi({ REDIS_BUDGET_BYTES: String(BUDGET_BYTES), SHARDS: '1' });
  flooder = await api.createTenant('flooder');
  quiet = await api.createTenant('quiet');
});
afterAll(async () => api[Symbol.asyncDispose]());

async function ingest(tenant: TestTenant, init: CallInit): Promise<Response> {
  return api.call('POST', '/ingest', { key: tenant.apiKey, ...init });
}

/** Sends large batches until one is not taken; at most twice the budget. */
async function flood(tenant: TestTenant): Promise<Response> {
  for (let sent = 0; sent < (2 * BUDGET_BYTES) / LARGE.length; sent += 1) {
    const answer = await ingest(tenant, { body: LARGE });
    if (answer.status !== 200) return answer;
    await answer.arrayBuffer();
  }
  throw new Error('expected a refusal before twice the budget was taken');
}

describe('pipeline §6: fairness inside one process', () => {
  it("F41: a small batch behind another project's flood is written with the next blocks, not after it", async () => {
    const raw = new Redis(api.stores.redis.url);
    const order: string[] = [];
    const submit = async (tenant: TestTenant, body: string, name: string): Promise<void> => {
      const format = 'json' as const;
      const rest = { retentionMs: 86_400_000, format, strict: false, batchMax: 1_000 };
      await api.deps.flush.submit({ projectId: tenant.projectId, body: Buffer.from(body), ...rest });
      order.push(name);
    };
    await raw.client('PAUSE', 30_000, 'WRITE');
    const answers = Array.from({ length: 16 }, async () => submit(flooder, FLAT, 'flood'));
    // Turns enough to send all of it, were that not bounded: the rest waits, and there the small one has its turn.
    for (let turn = 0; turn < 64; turn += 1) await new Promise((resolve) => setImmediate(resolve));
    answers.push(submit(quiet, JSON.stringify(small), 'small'));
    await raw.client('UNPAUSE');
    await Promise.all(answers);
    raw.disconnect();
    expect(order.indexOf('small')).toBeLessThanOrEqual(8);
  });
});

describe('pipeline §6: budgets', () => {
  it('F20: with ClickHouse away the flooder alone gets 429, before its body is looked at', async () => {
    await api.stores.clickhouse.stop();
    expect((await ingest(quiet, { json: small })).status).toBe(200);
    const refused = await flood(flooder);
    const seconds = Number(refused.headers.get('retry-after'));
    await expectError(refused, 429, 'BACKPRESSURE');
    expect(seconds).toBeGreaterThanOrEqual(1);
    expect(seconds).toBeLessThanOrEqual(360);
    for (const init of [
      { body: 'not json' },
      { body: 'x', headers: { 'content-type': 'application/xml' } },
      { body: 'x', headers: { 'content-encoding': 'nonsense' } },
      { body: 'x', headers: { 'idempotency-key': 'h\u00e9' } },
    ]) {
      // One request a second is let in to look; the next is refused again.
      const answer = await waitFor('a refusal', async () => {
        const given = await ingest(flooder, init);
        return given.status === 429 && given;
      });
      await expectError(answer, 429, 'BACKPRESSURE');
    }
    expect((await ingest(quiet, { json: small })).status).toBe(200);
  });

  it('401 and 403 come before 429, and neither a search nor a login is refused for it', async () => {
    const { apiKey } = await api.deps.apiKeys.create({ kind: 'system' }, flooder.projectId, {
      name: 'q',
      scopes: ['query'],
    });
    await expectError(await ingest(flooder, { key: apiKey, json: small }), 403, 'INSUFFICIENT_SCOPE');
    await expectError(await ingest(flooder, { key: `lp_${'a'.repeat(46)}` }), 401, 'INVALID_API_KEY');
    const login = { email: flooder.email, password: PASSWORD };
    expect((await api.call('POST', '/auth/login', { json: login })).status).toBe(200);
  });

  it('the flooder may look again after a second, one request at a time', async () => {
    await waitFor(
      'a request to be let in',
      async () => (await ingest(flooder, { json: small })).status === 200,
      3_000,
    );
    const next = await expectError(await ingest(flooder, { json: small }), 429, 'BACKPRESSURE');
    expect(next.error).toContain('fair share');
  });

  it('stats tell how much waits, and for how long', async () => {
    const backlog = await api.deps.stream.readBacklog(flooder.projectId);
    expect(backlog.entries).toBeGreaterThan(5_000);
    expect(backlog.bytes).toBeGreaterThan(BUDGET_BYTES * 0.4);
  });

  it('under pressure costly searches are refused and say so; health is not', async () => {
    for (const path of ['/logs?q=x&searchMode=substring', '/logs?q=x&searchMode=regex']) {
      const refused = await expectError(
        await api.call('GET', path, { key: quiet.apiKey }),
        503,
        'UNAVAILABLE',
      );
      expect(refused.error).toContain('much waits');
    }
    const cheap = await expectError(
      await api.call('GET', '/logs', { key: quiet.apiKey }),
      503,
      'UNAVAILABLE',
    );
    expect(cheap.error).not.toContain('much waits');
    expect((await api.call('GET', '/health')).status).toBe(200);
  });

  it('F20: above 80 % everybody gets 503 UNAVAILABLE with Retry-After', async () => {
    await waitFor('the budget to be full', async () => {
      tenants += 1;
      return (await flood(await api.createTenant(`more${tenants}`))).status === 503;
    });
    const refused = await expectError(await ingest(quiet, { body: LARGE }), 503, 'UNAVAILABLE');
    expect(refused.error).toContain('waits to be stored');
    const health = await expectJson<{ status: string }>(await api.call('GET', '/health'));
    expect(health.status).toBe('ok');
  });
});
