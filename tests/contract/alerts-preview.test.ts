import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { waitFor } from '../support/wait.ts';
import { pathOf } from './alerts-fixture.ts';
import { expectError, expectJson, openContractApi } from './contract-fixture.ts';
import type { ContractApi, TestTenant } from './contract-fixture.ts';

type Preview = {
  firings: { startedAt: string; resolvedAt: string | null; peak: number }[];
  maxCount: number;
  series: { bucket: string; count: number }[];
  quieterThreshold: number | null;
};

let api: ContractApi;
let ann: TestTenant;
let bob: TestTenant;
let sentFromMs: number;
let sentToMs: number;
let receivedMs: number;
beforeAll(async () => {
  api = await openContractApi();
  [ann, bob] = [await api.createTenant('ann'), await api.createTenant('bob')];
  const now = Date.now();
  const entry = (level: string, service: string, time = now, rest = {}): object => ({
    time: new Date(time).toISOString(),
    level,
    service,
    message: `said by ${service}`,
    metadata: { code: 503 },
    ...rest,
  });
  const json = [
    ...Array.from({ length: 6 }, () => entry('error', 'web')),
    ...Array.from({ length: 2 }, () => entry('error', 'db')),
    ...Array.from({ length: 3 }, () => entry('info', 'web', now, { message: 'Größe ist ZU VIEL' })),
    // Older than every window below when they arrive: they count for nothing.
    ...Array.from({ length: 50 }, () => entry('error', 'web', now - 7_200_000)),
  ];
  sentFromMs = Date.now();
  const sent = await api.call('POST', '/ingest', { key: ann.apiKey, json });
  receivedMs = Date.parse((await expectJson<{ timestamp: string }>(sent)).timestamp);
  sentToMs = Date.now();
  const foreign = Array.from({ length: 30 }, () => entry('error', 'web'));
  await expectJson(await api.call('POST', '/ingest', { key: bob.apiKey, json: foreign }));
  for (const { apiKey } of [ann, bob]) {
    await waitFor('all to be stored', async () => {
      const answer = await api.call('GET', '/logs?limit=1', { key: apiKey });
      return (await expectJson<{ total: number }>(answer)).total === (apiKey === ann.apiKey ? 61 : 30);
    });
  }
});
afterAll(async () => api[Symbol.asyncDispose]());

async function preview(rule: object, range: object = {}): Promise<Preview> {
  const json = { rule, ...range };
  return expectJson<Preview>(
    await api.call('POST', pathOf(ann, '/preview'), { session: ann.sessionToken, json }),
  );
}

function rule(condition: object, rest: object = {}): object {
  return { ...rest, condition: { threshold: 1, timeWindow: '1h', ...condition } };
}

describe('alerts §4: POST /projects/:id/alerts/preview', () => {
  it('says when the rule would have fired on the entries that arrived, and how high they rose', async () => {
    const errors = { field: 'level', operator: 'equals', value: 'error' };
    const fired = await preview(rule({ ...errors, threshold: 8 }));
    expect([fired.maxCount, fired.quieterThreshold]).toEqual([8, null]);
    expect(fired.firings).toMatchObject([{ resolvedAt: null, peak: 8 }]);
    // The 300th of an hour: 12 s.
    const startedMs = Date.parse(fired.firings[0]?.startedAt ?? '');
    expect(startedMs % 12_000).toBe(0);
    expect(startedMs).toBeGreaterThan(sentFromMs - 12_000);
    expect(startedMs).toBeLessThanOrEqual(sentToMs);
    const calm = await preview(rule({ ...errors, threshold: 9 }));
    expect(calm).toMatchObject({ firings: [], maxCount: 8 });
  });

  it.each<[string, object, number]>([
    ['level', rule({ field: 'level', operator: 'gte', value: 'info' }), 11],
    [
      'the service of the rule',
      rule({ field: 'level', operator: 'equals', value: 'error' }, { service: 'db' }),
      2,
    ],
    ['service', rule({ field: 'service', operator: 'not_in', value: ['db'] }), 9],
    ['text in any case', rule({ field: 'message', operator: 'contains', value: 'größe IST zu' }), 3],
    ['regex', rule({ field: 'message', operator: 'regex', value: '^said by (web|db)$' }), 8],
    ['metadata', rule({ field: 'metadata.code', operator: 'gt', value: 502.5 }), 11],
    ['the flat form', { level: ['error', 'critical'], threshold: 1, timeWindow: 60 }, 8],
    [
      'a window of a second',
      rule({ field: 'service', operator: 'equals', value: 'db', timeWindow: '5s' }),
      2,
    ],
  ])('counts what the rule matches: %s', async (_what, body, count) => {
    expect((await preview(body)).maxCount).toBe(count);
  });

  it('a series shows every bucket of the range, also empty ones, at most 500', async () => {
    const body = rule({ field: 'level', operator: 'equals', value: 'error' });
    const { series } = await preview(body);
    expect(series.length).toBeGreaterThan(400);
    expect(series.length).toBeLessThanOrEqual(500);
    const widths = new Set(
      series
        .slice(1)
        .map(({ bucket }, index) => Date.parse(bucket) - Date.parse(series[index]?.bucket ?? '')),
    );
    expect(widths).toEqual(new Set([180_000]));
    const month = await preview(body, { from: new Date(sentToMs - 29 * 86_400_000).toISOString() });
    expect(month.series.length).toBeLessThanOrEqual(500);
  });

  it('looks at what arrived in the range only, whatever the times of the entries', async () => {
    const body = rule({ field: 'level', operator: 'equals', value: 'error' });
    const to = new Date(sentFromMs - 60_000).toISOString();
    expect(await preview(body, { to })).toMatchObject({ firings: [], maxCount: 0 });
    const from = new Date(sentFromMs - 1_000).toISOString();
    expect(await preview(body, { from })).toMatchObject({ maxCount: 8 });
  });

  it('the second of `to` counts whole, and what was received later does not', async () => {
    const body = rule({ field: 'level', operator: 'equals', value: 'error' });
    const secondMs = Math.floor(receivedMs / 1_000) * 1_000;
    const until = async (ms: number): Promise<number> =>
      (await preview(body, { to: new Date(ms).toISOString() })).maxCount;
    expect(await until(secondMs)).toBe(8);
    expect(await until(secondMs - 1)).toBe(0);
  });

  it('never looks into the future: what fires now has not resolved, whatever `to` says', async () => {
    const body = rule({ field: 'level', operator: 'equals', value: 'error' });
    const { firings, series } = await preview(body, { to: new Date(Date.now() + 86_400_000).toISOString() });
    expect(firings).toMatchObject([{ resolvedAt: null }]);
    expect(Date.parse(series.at(-1)?.bucket ?? '')).toBeLessThanOrEqual(Date.now());
  });

  it('takes the fields of the rule beside from and to as well', async () => {
    const json = {
      level: ['error'],
      threshold: 1,
      timeWindow: 60,
      from: new Date(sentFromMs - 1_000).toISOString(),
    };
    const answer = await api.call('POST', pathOf(ann, '/preview'), { session: ann.sessionToken, json });
    expect(await expectJson(answer)).toMatchObject({ maxCount: 8 });
  });

  const good = rule({ field: 'level', operator: 'equals', value: 'error' });
  it.each<[object, string]>([
    [{ rule: good, from: 'yesterday' }, 'from'],
    [{ rule: good, from: '2026-01-02T00:00:00Z', to: '2026-01-01T00:00:00Z' }, 'from'],
    [{ rule: good, from: '2026-01-01T00:00:00Z', to: '2026-01-31T00:00:01Z' }, 'from'],
    [{ rule: good, from: '2100-01-01T00:00:00Z' }, 'from'],
    [{ rule: rule({ field: 'level', operator: 'like', value: 'x' }) }, 'rule.condition.operator'],
    [{ condition: { field: 'level' } }, 'condition.operator'],
    [{ rule: good, limit: 3 }, ''],
    [{}, 'condition'],
  ])('%j is refused at %j', async (json, path) => {
    const answer = await api.call('POST', pathOf(ann, '/preview'), { session: ann.sessionToken, json });
    const { details } = await expectError(answer, 400, 'VALIDATION_ERROR');
    expect(details?.map((detail) => detail.path)).toContain(path);
  });
});
