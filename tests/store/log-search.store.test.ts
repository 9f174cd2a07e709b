import { randomUUID } from 'node:crypto';
import { buildSearch } from '@logpond/db/log-sql';
import type { StoredEntry } from '@logpond/log-block/entry-json';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { entryAt, HOUR_NS, NOW_NS, queryFor, startEngine, storeEntries } from './log-store-fixture.ts';
import type { TestEngine } from './log-store-fixture.ts';

let engine: TestEngine;
beforeAll(async () => {
  engine = await startEngine();
});
afterAll(async () => {
  await engine.stop();
});

const retentionDays = 30;

describe('paging by cursor', () => {
  it.each(['desc', 'asc'] as const)(
    '%s skips and repeats nothing, with equal times, while entries arrive',
    async (order) => {
      const projectId = randomUUID();
      const times = Array.from({ length: 300 }, (_, index) => NOW_NS - HOUR_NS + BigInt(index % 7));
      await storeEntries(
        engine.logs,
        projectId,
        times.map((time, index) => entryAt(time, { message: `old ${index}` })),
      );
      const seen: StoredEntry[] = [];
      let cursor: string | undefined;
      let firstOffset = 1000;
      do {
        const query = queryFor({}, { limit: 17, order, ...(cursor !== undefined && { cursor }) });
        const page = await engine.logs.search({ projectId, retentionDays }, query);
        seen.push(...page.entries);
        expect(page.hasMore).toBe(page.nextCursor !== null);
        cursor = page.nextCursor ?? undefined;
        const arriving = times
          .slice(0, 3)
          .map((time, index) => entryAt(time + BigInt(index), { message: 'new' }));
        await storeEntries(engine.logs, projectId, arriving, { firstOffset });
        firstOffset += arriving.length;
      } while (cursor !== undefined && seen.length < 2000);
      const old = seen.filter(({ message }) => message.startsWith('old'));
      expect(new Set(old.map(({ message }) => message)).size).toBe(300);
      expect(new Set(seen.map(({ id }) => id)).size).toBe(seen.length);
    },
  );

  it('refuses a cursor of another project or filter', async () => {
    const [projectId, other] = [randomUUID(), randomUUID()];
    await storeEntries(engine.logs, projectId, [entryAt(NOW_NS), entryAt(NOW_NS)]);
    const { nextCursor } = await engine.logs.search({ projectId, retentionDays }, queryFor({}, { limit: 1 }));
    const cursor = nextCursor ?? '';
    expect(
      (await engine.logs.search({ projectId, retentionDays }, queryFor({}, { cursor }))).entries,
    ).toHaveLength(1);
    const strangers = [
      { project: other, services: [] },
      { project: projectId, services: ['api'] },
    ];
    for (const { project, services } of strangers) {
      const search = engine.logs.search(
        { projectId: project, retentionDays },
        queryFor({ services }, { cursor }),
      );
      await expect(search).rejects.toMatchObject({ kind: 'invalid_query' });
    }
  });
});

describe('a large project', () => {
  it('answers its newest page and a deep one from few rows, and counts to 10,000', async () => {
    const projectId = randomUUID();
    const entryCount = 60_000;
    const sent = Array.from({ length: entryCount }, (_, index) =>
      entryAt(NOW_NS - BigInt(index) * 1_000_000n, {
        level: 1 + (index % 5),
        message: `entry number ${index}`,
      }),
    );
    await storeEntries(engine.logs, projectId, sent);
    const scope = { projectId, oldestNs: NOW_NS - 720n * HOUR_NS };
    for (const after of [undefined, { timeNs: NOW_NS - 50_000_000_000n, seq: 1n }]) {
      const rowsRead = await countRowsRead(buildSearch(scope, queryFor(), after), projectId);
      expect(rowsRead).toBeGreaterThanOrEqual(100);
      expect(rowsRead).toBeLessThan(20_000);
    }
    const page = await engine.logs.search({ projectId, retentionDays }, queryFor({}, { limit: 1 }));
    expect([page.total, page.totalRelation]).toEqual([10_000, 'gte']);
    const exact = await engine.logs.search(
      { projectId, retentionDays },
      queryFor({ fromNs: NOW_NS - 9_999_000_000n }),
    );
    expect([exact.total, exact.totalRelation]).toEqual([10_000, 'eq']);
    expect(exact.entries[0]?.message).toBe('entry number 0');
    const last = await engine.logs.search(
      { projectId, retentionDays },
      queryFor({}, { offset: 10_000, limit: 1 }),
    );
    expect(last.entries[0]?.message).toBe('entry number 10000');
  });
});

/** The engine's own count, which only the JSON format carries. */
async function countRowsRead(query: ReturnType<typeof buildSearch>, projectId: string): Promise<number> {
  const url = new URL(engine.settings.CLICKHOUSE_URL);
  url.searchParams.set('log_comment', projectId);
  for (const [name, value] of Object.entries(query.params)) {
    url.searchParams.set(`param_${name}`, String(value));
  }
  const login = Buffer.from(`${engine.settings.CLICKHOUSE_USER}:${engine.settings.CLICKHOUSE_PASSWORD}`);
  const headers = { Authorization: `Basic ${login.toString('base64')}` };
  const answer = await fetch(url, {
    method: 'POST',
    headers,
    body: `${query.sql} FORMAT JSON`,
    signal: AbortSignal.timeout(10_000),
  });
  const { statistics } = (await answer.json()) as { statistics: { rows_read: number } };
  return statistics.rows_read;
}
