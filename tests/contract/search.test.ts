import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { expectError, expectJson } from './contract-fixture.ts';
import type { ContractApi, TestTenant } from './contract-fixture.ts';
import { TRACE, at, baseMs, openSearchFixture } from './search-fixture.ts';
import type { Page, SearchFixture } from './search-fixture.ts';

let fixture: SearchFixture;
let api: ContractApi;
let mine: TestTenant;
let other: TestTenant;
let search: SearchFixture['search'];
let numbers: SearchFixture['numbers'];
beforeAll(async () => {
  fixture = await openSearchFixture();
  ({ api, mine, other, search, numbers } = fixture);
});
afterAll(async () => fixture[Symbol.asyncDispose]());

describe('interface 4: GET /logs', () => {
  it('100 by default, newest first, with totals and the paging fields', async () => {
    const page = await search('');
    expect({ ...page, logs: page.logs.length, nextCursor: '' }).toEqual({
      logs: 100,
      total: 250,
      totalRelation: 'eq',
      limit: 100,
      offset: 0,
      hasMore: true,
      nextCursor: '',
    });
    expect(page.nextCursor).toEqual(expect.any(String));
    expect(page.logs.map((entry) => (entry.metadata as { n: number }).n)).toEqual(
      Array.from({ length: 100 }, (_, n) => 249 - n),
    );
    expect(page.logs[0]).toEqual({
      id: expect.stringMatching(/^[0-9a-f-]{36}$/) as string,
      time: at(249),
      service: 'worker',
      level: 'critical',
      message: 'Entry number 249 of the Größe fine',
      metadata: { n: 249, user: { name: 'user-0' }, 'a.b': 'literal' },
    });
  });

  it('service and level filter, and may be repeated to match any', async () => {
    const all = Array.from({ length: 250 }, (_, n) => 249 - n);
    expect(await numbers('service=web')).toEqual(all.filter((n) => n % 2 === 0));
    expect(await numbers('level=error')).toEqual(all.filter((n) => n % 5 === 3));
    expect(await numbers('level=error&level=CRITICAL&service=web')).toEqual(
      all.filter((n) => n % 5 >= 3 && n % 2 === 0),
    );
    expect(await numbers('not.level=debug&not.service=web')).toEqual(
      all.filter((n) => n % 5 !== 0 && n % 2 === 1),
    );
  });

  it('from and to are inclusive, in any offset', async () => {
    expect(await numbers(`from=${at(10)}&to=${at(12)}`)).toEqual([12, 11, 10]);
    const shifted = new Date(baseMs + 10_000 + 2 * 3_600_000).toISOString().replace('Z', '%2B02:00');
    expect(await numbers(`from=${shifted}&to=${at(10)}`)).toEqual([10]);
  });

  it('q finds all words in any order and case, "+" and %20 being spaces, and phrases in quotes', async () => {
    const hits = Array.from({ length: 25 }, (_, n) => 240 - 10 * n);
    for (const q of ['reading+TIMEOUT', 'reading%20timeout', '%22while+reading%22'])
      expect(await numbers(`q=${q}`)).toEqual(hits);
    expect(await numbers('q=%22reading+while%22')).toEqual([]);
    expect(await numbers('q=GR%C3%96SSE+17')).toEqual([]);
    expect(await numbers('q=gr%C3%B6%C3%9Fe+number+17')).toEqual([17]);
    expect(await numbers('not.q=fine')).toHaveLength(25);
  });

  it('limit and offset page without overlap; hasMore ends', async () => {
    const pages = [];
    for (const offset of [0, 100, 200]) pages.push(await search(`limit=100&offset=${offset}`));
    expect(pages.map(({ logs, hasMore }) => [logs.length, hasMore])).toEqual([
      [100, true],
      [100, true],
      [50, false],
    ]);
    expect(new Set(pages.flatMap(({ logs }) => logs.map(({ id }) => id))).size).toBe(250);
    expect(pages[2]?.nextCursor).toBeNull();
  });

  it('a cursor walks all entries once, is bound to its filters, and excludes offset', async () => {
    const seen: string[] = [];
    let cursor: string | null = '';
    let first = '';
    while (cursor !== null) {
      const page: Page = await search(
        `limit=60&service=web${cursor === '' ? '' : `&cursor=${encodeURIComponent(cursor)}`}`,
      );
      seen.push(...page.logs.map(({ id }) => id));
      cursor = page.nextCursor;
      first ||= cursor ?? '';
    }
    expect([seen.length, new Set(seen).size]).toEqual([125, 125]);
    const refuse = async (query: string, tenant = mine): Promise<void> => {
      await expectError(
        await api.call('GET', `/logs?${query}`, { key: tenant.apiKey }),
        400,
        'VALIDATION_ERROR',
      );
    };
    await refuse(`service=worker&cursor=${first}`);
    await refuse(`service=web&cursor=${first}`, other);
    await refuse(`service=web&offset=1&cursor=${first}`);
    await refuse('cursor=nonsense');
  });

  it('400 naming the parameter for what is out of range', async () => {
    const bad = [
      'limit=0',
      'limit=1001',
      'limit=x',
      'offset=-1',
      'offset=10001',
      'level=loud',
      'from=yesterday',
      'to=2026-02-30T00:00:00Z',
      `from=${at(2)}&to=${at(1)}`,
      `q=${'x'.repeat(513)}`,
      'limit=1&limit=2',
      'order=up',
      'searchMode=magic',
      'searchMode=regex&q=(',
    ];
    for (const query of bad) {
      const error = await expectError(
        await api.call('GET', `/logs?${query}`, { key: mine.apiKey }),
        400,
        'VALIDATION_ERROR',
      );
      expect([query, error.error]).toEqual([
        query,
        expect.not.stringMatching(/SELECT|DB::|Exception|Version/i),
      ]);
    }
    const deep = await expectError(
      await api.call('GET', '/logs?offset=10001', { key: mine.apiKey }),
      400,
      'VALIDATION_ERROR',
    );
    expect(deep.error).toContain('cursor');
    expect((await search('unknown=1&unknown=2')).total).toBe(250);
  });

  it('order=asc, traceId in both forms, metadata by path and by literal key, substring and regex', async () => {
    expect((await numbers('order=asc')).slice(0, 3)).toEqual([0, 1, 2]);
    for (const trace of [TRACE, TRACE.replaceAll('-', '')]) {
      expect(await numbers(`traceId=${trace}`)).toEqual([42]);
      expect(await numbers(`q=${trace}`)).toEqual([42]);
    }
    expect((await search(`traceId=${TRACE}`)).logs[0]?.trace_id).toBe(
      TRACE.replaceAll('-', '').toUpperCase(),
    );
    expect(await numbers('metadata.n=17')).toEqual([17]);
    expect((await numbers('metadata.user.name=user-1')).length).toBe(83);
    expect((await numbers('metadata.a.b=literal')).length).toBe(250);
    expect((await numbers('searchMode=substring&q=MEOUT')).length).toBe(25);
    expect(await numbers('searchMode=regex&q=number%2024[0-9]%20.*timeout')).toEqual([240]);
  });

  it('a session needs projectId and membership, and its entries carry project_id', async () => {
    const session = mine.sessionToken;
    const page = await expectJson<Page>(
      await api.call('GET', `/logs?limit=1&projectId=${mine.projectId}`, { session }),
    );
    expect(page.logs[0]?.project_id).toBe(mine.projectId);
    await expectError(await api.call('GET', '/logs', { session }), 400, 'VALIDATION_ERROR');
    await expectError(
      await api.call('GET', `/logs?projectId=${other.projectId}`, { session }),
      404,
      'NOT_FOUND',
    );
    await expectError(await api.call('GET', '/logs?projectId=x', { session }), 404, 'NOT_FOUND');
    const twice = `/logs?projectId=${mine.projectId}&projectId=${other.projectId}`;
    await expectError(await api.call('GET', twice, { session }), 400, 'VALIDATION_ERROR');
  });
});
