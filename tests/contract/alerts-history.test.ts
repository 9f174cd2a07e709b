import { randomUUID } from 'node:crypto';
import type { HistoryRow } from '@logpond/db/alert-history';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createRule, pathOf, SHAPE_A } from './alerts-fixture.ts';
import { expectError, expectJson, openContractApi } from './contract-fixture.ts';
import type { ContractApi, TestTenant } from './contract-fixture.ts';

type Page = { history: { id: string; ruleId: string; startedAt: string }[]; nextCursor: string | null };

/** Firings of one tenant: 3 a minute, of two rules in turn. */
const FIRINGS = 45;
const startMs = Math.floor((Date.now() - 3_600_000) / 60_000) * 60_000;

let api: ContractApi;
let ann: TestTenant;
let bob: TestTenant;
let ruleIds: string[];
let firings: Extract<HistoryRow, { type: 'firing' }>[];
beforeAll(async () => {
  api = await openContractApi();
  [ann, bob] = [await api.createTenant('ann'), await api.createTenant('bob')];
  ruleIds = [(await createRule(api, ann, SHAPE_A)).id, (await createRule(api, ann, SHAPE_A)).id];
  firings = Array.from({ length: FIRINGS }, (_, n) => ({
    type: 'firing',
    projectId: ann.projectId,
    ruleId: ruleIds[n % 2] ?? '',
    ruleName: 'Errors',
    firingId: randomUUID(),
    startedAtMs: startMs + Math.floor(n / 3) * 60_000,
    resolvedAtMs: n % 5 === 0 ? null : startMs + n * 60_000 + 30_000,
    count: 10 + n,
    threshold: 10,
    timeWindow: '90s',
    peak: 20 + n,
    version: 1,
  }));
  await api.deps.alertHistory.insert(firings);
});
afterAll(async () => api[Symbol.asyncDispose]());

async function read(query = '', who = ann): Promise<Page> {
  return expectJson<Page>(
    await api.call('GET', pathOf(ann, `/history${query}`), { session: who.sessionToken }),
  );
}

function startedAt(minute: number): string {
  return new Date(startMs + minute * 60_000).toISOString();
}

describe('alerts §4: GET /projects/:id/alerts/history', () => {
  it('gives what is known of each firing and its notifications, newest first', async () => {
    const newest = firings.at(-1);
    if (newest === undefined) throw new Error('expected firings');
    const { projectId, firingId, startedAtMs } = newest;
    const delivery = { projectId, firingId, startedAtMs, kind: 'fired', repeat: 0, attempts: 4 } as const;
    await api.deps.alertHistory.insert([
      {
        ...delivery,
        type: 'delivery',
        channel: 'email',
        target: 'ops@example.org',
        status: 'failed',
        lastError: '550 no such user',
        atMs: startedAtMs + 1_500,
      },
    ]);
    const { history, nextCursor } = await read();
    expect([history.length, nextCursor]).toEqual([FIRINGS, null]);
    expect(history.find(({ id }) => id === firingId)).toEqual({
      id: firingId,
      ruleId: newest.ruleId,
      ruleName: 'Errors',
      startedAt: startedAt(14),
      resolvedAt: startedAt(44.5),
      count: 54,
      peak: 64,
      threshold: 10,
      timeWindow: '90s',
      deliveries: [
        {
          kind: 'fired',
          repeat: 0,
          channel: 'email',
          target: 'ops@example.org',
          status: 'failed',
          attempts: 4,
          lastError: '550 no such user',
          at: new Date(startedAtMs + 1_500).toISOString(),
        },
      ],
    });
    const times = history.map((firing) => firing.startedAt);
    expect(times).toEqual(times.toSorted().toReversed());
  });

  it('deliveries come oldest first, those of one moment in the order in which they were caused', async () => {
    const [firing] = firings;
    if (firing === undefined) throw new Error('expected firings');
    const { projectId, firingId, startedAtMs } = firing;
    const of = (
      kind: 'fired' | 'renotified' | 'resolved',
      afterMs: number,
      repeat = 0,
      target = 'a@x.org',
    ) => ({
      projectId,
      firingId,
      startedAtMs,
      kind,
      repeat,
      target,
      attempts: 1,
      lastError: null,
      type: 'delivery' as const,
      channel: 'email' as const,
      status: 'sent' as const,
      atMs: startedAtMs + afterMs,
    });
    const ordered = [
      of('fired', 100),
      of('fired', 100, 0, 'b@x.org'),
      of('renotified', 200, 1),
      of('renotified', 300, 2),
      of('resolved', 300),
    ];
    await api.deps.alertHistory.insert(ordered.toReversed());
    const shown = (await read()).history.find(({ id }) => id === firingId);
    expect(shown).toMatchObject({
      deliveries: ordered.map(({ kind, repeat, target }) => ({ kind, repeat, target })),
    });
  });

  it.each([1, 2, 7, 45, 1000])('pages of %i hold every firing once', async (limit) => {
    const seen: string[] = [];
    let cursor = '';
    do {
      const page = await read(`?limit=${limit}${cursor === '' ? '' : `&cursor=${cursor}`}`);
      seen.push(...page.history.map(({ id }) => id));
      expect(page.history.length).toBeLessThanOrEqual(limit);
      cursor = page.nextCursor ?? '';
    } while (cursor !== '' && seen.length <= FIRINGS);
    expect(seen).toHaveLength(FIRINGS);
    expect(new Set(seen)).toEqual(new Set(firings.map(({ firingId }) => firingId)));
  });

  it('finds by rule, also a deleted one, and by time', async () => {
    const [ruleId = ''] = ruleIds;
    const gone = await api.call('DELETE', pathOf(ann, `/${ruleId}`), { session: ann.sessionToken });
    expect(gone.status).toBe(204);
    const ofRule = (await read(`?ruleId=${ruleId.toUpperCase()}`)).history;
    expect([ofRule.length, new Set(ofRule.map((firing) => firing.ruleId))]).toEqual([23, new Set([ruleId])]);
    const between = (await read(`?from=${startedAt(3)}&to=${startedAt(5)}`)).history;
    expect(new Set(between.map((firing) => firing.startedAt))).toEqual(
      new Set([startedAt(3), startedAt(4), startedAt(5)]),
    );
    expect(between).toHaveLength(9);
    expect((await read(`?ruleId=${ruleId}&from=${startedAt(14)}`)).history).toHaveLength(2);
  });

  it('takes a time with an offset whose plus sign was not encoded, and ignores an empty parameter', async () => {
    const minute = new Date(startMs + 14 * 60_000 + 3_600_000).toISOString().slice(0, 19);
    expect((await read(`?from=${minute}+01:00&to=&ruleId=`)).history).toHaveLength(3);
  });

  it('another project has none of it', async () => {
    const session = bob.sessionToken;
    const [ruleId = ''] = ruleIds;
    for (const query of ['', `?ruleId=${ruleId}`]) {
      const answer = await api.call('GET', pathOf(bob, `/history${query}`), { session });
      expect(await expectJson(answer)).toEqual({ history: [], nextCursor: null });
    }
    await expectError(await api.call('GET', pathOf(ann, '/history'), { session }), 404, 'NOT_FOUND');
  });

  it.each([
    ['limit=0', 'limit'],
    ['limit=1001', 'limit'],
    ['cursor=abc', 'cursor'],
    ['ruleId=abc', 'ruleId'],
    ['from=yesterday', 'from'],
  ])('?%s is refused at %s', async (query, path) => {
    const answer = await api.call('GET', pathOf(ann, `/history?${query}`), { session: ann.sessionToken });
    expect((await expectError(answer, 400, 'VALIDATION_ERROR')).details?.[0]?.path).toBe(path);
  });

  it('503 while ClickHouse is away; the rules themselves can be read and changed', async () => {
    await api.stores.clickhouse.stop();
    const session = ann.sessionToken;
    await expectError(await api.call('GET', pathOf(ann, '/history'), { session }), 503, 'UNAVAILABLE');
    const json = { rule: SHAPE_A };
    await expectError(await api.call('POST', pathOf(ann, '/preview'), { session, json }), 503, 'UNAVAILABLE');
    await createRule(api, ann, SHAPE_A);
    expect((await api.call('GET', pathOf(ann), { session })).status).toBe(200);
  });
});
