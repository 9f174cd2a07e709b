import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { expectError, expectJson } from './contract-fixture.ts';
import type { ContractApi, TestTenant } from './contract-fixture.ts';
import { CANARY, TRACE, at, openSearchFixture } from './search-fixture.ts';
import type { Counts, SearchFixture } from './search-fixture.ts';

let fixture: SearchFixture;
let api: ContractApi;
let mine: TestTenant;
let other: TestTenant;
let search: SearchFixture['search'];
beforeAll(async () => {
  fixture = await openSearchFixture();
  ({ api, mine, other, search } = fixture);
});
afterAll(async () => fixture[Symbol.asyncDispose]());

describe('contract §4: GET /logs/:id', () => {
  it('200 {log} for an own entry; foreign, missing and malformed ids the same 404', async () => {
    const [entry] = (await search('limit=1')).logs;
    expect(await expectJson(await api.call('GET', `/logs/${entry?.id}`, { key: mine.apiKey }))).toEqual({
      log: entry,
    });
    const errors = [];
    for (const id of [entry?.id, '0199a1b2-0000-7000-8000-000000000001', 'x']) {
      const key = id === entry?.id ? other.apiKey : mine.apiKey;
      errors.push((await expectError(await api.call('GET', `/logs/${id}`, { key }), 404, 'NOT_FOUND')).code);
    }
    expect(errors).toEqual(Array(3).fill('NOT_FOUND'));
  });
});

describe('interface 6: GET /logs/aggregated', () => {
  it('buckets with all five levels, top services and errors, exactly as sent', async () => {
    const answer = await expectJson<Counts>(
      await api.call('GET', `/logs/aggregated?interval=1m&from=${at(0)}&to=${at(249)}`, { key: mine.apiKey }),
    );
    expect(answer.timeseries.map(({ bucket, total }) => [bucket, total])).toEqual([
      [at(0), 60],
      [at(60), 60],
      [at(120), 60],
      [at(180), 60],
      [at(240), 10],
    ]);
    expect(answer.timeseries[4]?.by_level).toEqual({ debug: 2, info: 2, warn: 2, error: 2, critical: 2 });
    expect(answer.top_services).toEqual(
      expect.arrayContaining([
        { service: 'web', count: 125 },
        { service: 'worker', count: 125 },
      ]),
    );
    expect(answer.top_errors).toHaveLength(10);
  });

  it('1h over the last 24 h by default, empty buckets with zeros', async () => {
    const { timeseries } = await expectJson<Counts>(
      await api.call('GET', '/logs/aggregated', { key: mine.apiKey }),
    );
    expect([24, 25]).toContain(timeseries.length);
    expect(timeseries.reduce((sum, { total }) => sum + total, 0)).toBe(250);
    expect(timeseries.filter(({ total }) => total === 0).length).toBe(timeseries.length - 1);
    expect(timeseries.every(({ bucket }) => bucket.endsWith(':00:00.000Z'))).toBe(true);
  });

  it('counts every entry whatever the length of the interval and however far the range reaches', async () => {
    for (const query of ['interval=200000d', 'interval=99999999d', 'interval=30d&to=2262-01-01T00:00:00Z']) {
      const answer = await api.call('GET', `/logs/aggregated?from=${at(0)}&${query}`, { key: mine.apiKey });
      const { timeseries } = await expectJson<Counts>(answer);
      expect([query, timeseries.reduce((sum, { total }) => sum + total, 0)]).toEqual([query, 250]);
    }
  });

  it('takes the filters of /logs; 400 for a malformed interval and more than 10,080 buckets', async () => {
    const filtered = await expectJson<Counts>(
      await api.call('GET', '/logs/aggregated?q=timeout&level=debug', { key: mine.apiKey }),
    );
    expect(filtered.timeseries.reduce((sum, { total }) => sum + total, 0)).toBe(25);
    for (const query of [
      'interval=0h',
      'interval=1y',
      'interval=hour',
      'interval=1s&from=2026-01-01&to=2026-01-02',
      'interval=1s&interval=1m',
    ]) {
      await expectError(
        await api.call('GET', `/logs/aggregated?${query}`, { key: mine.apiKey }),
        400,
        'VALIDATION_ERROR',
      );
    }
  });
});

describe('security.md §5: tenants never mix', () => {
  it("no filter, page, count, id or error shows the other tenant's canary", async () => {
    const hostile = [
      '',
      `q=${CANARY}`,
      `traceId=${TRACE}`,
      'service=web%27%20OR%201=1%20--',
      'metadata.x%27)%20OR%201=1%20--=1',
      'searchMode=substring&q=%25',
      'searchMode=substring&q=canary_of',
      'searchMode=regex&q=.*',
      'q=%22%22',
      'q=%5C',
      `projectId=${mine.projectId}`,
      'q=%00',
      'metadata.%5C%27=%5C',
    ];
    for (const query of hostile) {
      for (const path of ['/logs', '/logs/aggregated']) {
        const response = await api.call('GET', `${path}?${query}`, { key: mine.apiKey });
        const text = await response.text();
        expect([path, query, response.status < 500]).toEqual([path, query, true]);
        expect(text.replace(JSON.stringify(query), '')).not.toContain(CANARY);
      }
    }
    await expectError(
      await api.call('GET', `/logs?projectId=${other.projectId}`, { key: mine.apiKey }),
      404,
      'NOT_FOUND',
    );
    expect((await search(`q=${CANARY}`, other)).logs).toHaveLength(1);
  });
});
