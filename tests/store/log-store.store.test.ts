import { randomUUID } from 'node:crypto';
import { connectClickHouse } from '@logpond/db/clickhouse';
import { buildSearch } from '@logpond/db/log-sql';
import { LogStore } from '@logpond/db/log-store';
import { decodeEntryId } from '@logpond/log-block/entry-id';
import type { CheckedEntry } from '@logpond/schema/log-entry';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  CURSOR_SECRET,
  entryAt,
  makePlan,
  NOW_MS,
  NOW_NS,
  queryFor,
  startEngine,
  storeEntries,
} from './log-store-fixture.ts';
import type { TestEngine } from './log-store-fixture.ts';

let engine: TestEngine;
beforeAll(async () => {
  engine = await startEngine();
});
afterAll(async () => {
  await engine.stop();
});

const retentionDays = 30;

describe('a stored plan', () => {
  it('is stored once when it is inserted twice with its token, in the roll-up too', async () => {
    const projectId = randomUUID();
    const entries = Array.from({ length: 500 }, (_, index) =>
      entryAt(NOW_NS - BigInt(index) * 90_000_000_000n),
    );
    const plan = makePlan([{ projectId, entries }], { shard: 1, firstOffset: 10 });
    for (let attempt = 0; attempt < 3; attempt++) {
      await engine.logs.insertPlan(plan.chunks, plan.token, plan.rows);
    }
    expect(await engine.logs.countPlan(plan.range)).toEqual({ rows: 500, entries: 500 });
    const [counted] = await engine.store.readInternal<{ entries: string }>(
      'SELECT sum(entries) AS entries FROM logs_hourly WHERE project_id = {project:UUID}',
      { project: projectId },
    );
    expect(counted?.entries).toBe('500');
  });

  it('is counted and listed by its offsets, within its shard and range only', async () => {
    const projects = [randomUUID(), randomUUID()];
    const runs = projects.map((projectId) => ({
      projectId,
      entries: [entryAt(NOW_NS - 1n), entryAt(NOW_NS)],
    }));
    const plan = makePlan(runs, { epoch: 7, shard: 2, firstOffset: 2 ** 40 });
    await engine.logs.insertPlan(plan.chunks, plan.token, plan.rows);
    expect(await engine.logs.countPlan(plan.range)).toEqual({ rows: 4, entries: 4 });
    expect(await engine.logs.listPlanOffsets(plan.range)).toEqual(
      new Set([0, 1, 2, 3].map((index) => 2 ** 40 + index)),
    );
    expect(await engine.logs.countPlan({ ...plan.range, shard: 3 })).toEqual({ rows: 0, entries: 0 });
    const hour = Number(NOW_NS / 1_000_000_000n);
    expect(await engine.logs.countPlan({ ...plan.range, hours: [hour - 3_600, hour] })).toEqual({
      rows: 4,
      entries: 4,
    });
    // One of the two entries of each project is a nanosecond before the hour.
    expect(await engine.logs.countPlan({ ...plan.range, hours: [hour] })).toEqual({ rows: 2, entries: 2 });
    expect(await engine.logs.listPlanOffsets({ ...plan.range, hours: [hour] })).toHaveProperty('size', 2);
    expect(await engine.logs.countPlan({ ...plan.range, seqTo: plan.range.seqTo - 1n })).toEqual({
      rows: 3,
      entries: 3,
    });
    const maxSeqs = await engine.logs.findMaxSeqs();
    expect(maxSeqs.get(2)).toBe(plan.range.seqTo - 1n);
    expect(maxSeqs.has(200)).toBe(false);
  });

  it('is counted by entries and by rows: a double one does not hide a missing one', async () => {
    const entries = [entryAt(NOW_NS), entryAt(NOW_NS)];
    const plan = makePlan([{ projectId: randomUUID(), entries }], { shard: 6 });
    await engine.logs.insertPlan(plan.chunks, plan.token, plan.rows);
    await engine.logs.insertPlan(plan.chunks, `${plan.token} again`, plan.rows);
    expect(await engine.logs.countPlan(plan.range)).toEqual({ rows: 4, entries: 2 });
  });

  it('may span all partitions of the longest retention', async () => {
    const monthNs = 30n * 86_400_000_000_000n;
    const entries = Array.from({ length: 121 }, (_, index) => entryAt(NOW_NS - BigInt(index) * monthNs));
    const runs = [{ projectId: randomUUID(), entries }];
    const plan = makePlan(runs, { shard: 4, retentionClass: 3650 });
    await engine.logs.insertPlan(plan.chunks, plan.token, plan.rows);
    expect(await engine.logs.countPlan(plan.range)).toEqual({ rows: 121, entries: 121 });
  });

  it('without rows is no insert', async () => {
    await engine.logs.insertPlan([], 'nothing', 0);
    expect(await engine.store.ping()).toBe(true);
  });

  it('of broken bytes is refused for good, and stores nothing', async () => {
    const plan = makePlan([{ projectId: randomUUID(), entries: [entryAt(NOW_NS), entryAt(NOW_NS)] }], {
      shard: 9,
    });
    const bytes = Buffer.concat(plan.chunks);
    const insert = engine.logs.insertPlan([bytes.subarray(0, bytes.length - 3)], plan.token, plan.rows);
    await expect(insert).rejects.toMatchObject({ kind: 'invalid_query', store: 'clickhouse' });
    expect(await engine.logs.countPlan(plan.range)).toEqual({ rows: 0, entries: 0 });
  });
});

describe('an entry', () => {
  const trace = '0AF7651916CD43DD8448EB211C80319C';
  const cases: Record<string, Partial<CheckedEntry>> = {
    nanoseconds: { timeNs: NOW_NS - 123_456_789n },
    'every level': { level: 5 },
    'characters of all planes, NUL and control characters': {
      message: 'ß € 𝄞 \0 \u0001 \t\n\r \u2028 \\ "quoted" \'',
      service: 'größe/𝄞',
    },
    'an empty message': { message: '' },
    'a large message': { message: 'ä'.repeat(32_768) },
    'big integers and odd keys': {
      metadataJson: '{"n":12345678901234567890123,"__proto__":{"a.b":null},"":[1.0,true,"\\u0000"]}',
    },
    'a trace as lower-case UUID': { traceId: '0af76519-16cd-43dd-8448-eb211c80319c' },
    'a trace as lower-case hex': { traceId: trace.toLowerCase() },
    'a trace in capitals': { traceId: trace },
    'a trace of any text': { traceId: 'req-ö 1', spanId: 'b7ad6b7169203331', sessionId: 's 1' },
  };

  it.each(Object.entries(cases))('comes back exactly: %s', async (name, fields) => {
    const projectId = randomUUID();
    const sent = entryAt(NOW_NS - 1n, fields);
    await storeEntries(engine.logs, projectId, [sent], { firstOffset: 5, epoch: 3, shard: 4 });
    const scope = { projectId, retentionDays };
    const { entries, total, totalRelation, hasMore, nextCursor } = await engine.logs.search(
      scope,
      queryFor(),
    );
    expect({ name, total, totalRelation, hasMore, nextCursor }).toEqual({
      name,
      total: 1,
      totalRelation: 'eq',
      hasMore: false,
      nextCursor: null,
    });
    const [found] = entries;
    const { level, ...rest } = sent;
    expect(found).toEqual({ ...rest, id: found?.id, level: level === 5 ? 'critical' : 'info' });
    const timeMs = Number(sent.timeNs / 1_000_000n);
    expect(decodeEntryId(found?.id ?? '')).toEqual({ timeMs, epoch: 3, shard: 4, offset: 5 });
    expect(await engine.logs.findEntry(scope, found?.id ?? '')).toEqual(found);
    expect(await engine.logs.findEntry({ ...scope, withProjectId: true }, found?.id ?? '')).toEqual({
      ...found,
      projectId,
    });
  });

  it('is not found under another project, or by an id that is none', async () => {
    const projectId = randomUUID();
    await storeEntries(engine.logs, projectId, [entryAt(NOW_NS)]);
    const { entries } = await engine.logs.search({ projectId, retentionDays }, queryFor());
    const id = entries[0]?.id ?? '';
    expect(await engine.logs.findEntry({ projectId: randomUUID(), retentionDays }, id)).toBeUndefined();
    expect(await engine.logs.findEntry({ projectId, retentionDays }, randomUUID())).toBeUndefined();
    expect(await engine.logs.findEntry({ projectId, retentionDays }, "x' OR 1=1")).toBeUndefined();
  });

  it('older than the retention is never returned, and is again when the retention grows', async () => {
    const projectId = randomUUID();
    await storeEntries(engine.logs, projectId, [
      entryAt(NOW_NS - 172_800_000_000_001n),
      entryAt(NOW_NS - 172_800_000_000_000n),
    ]);
    const count = async (days: number): Promise<number> =>
      (await engine.logs.search({ projectId, retentionDays: days }, queryFor({ fromNs: 0n }))).total;
    expect([await count(1), await count(2), await count(3)]).toEqual([0, 1, 2]);
  });
});

describe('two tenants', () => {
  it('never see each other, asking the same in turn with caches on', async () => {
    const projects = [randomUUID(), randomUUID()];
    for (const projectId of projects) {
      const entries = Array.from({ length: 50 }, (_, index) =>
        entryAt(NOW_NS - BigInt(index), { message: `canary ${projectId} number ${index}` }),
      );
      await storeEntries(engine.logs, projectId, entries);
    }
    for (const text of [
      undefined,
      { mode: 'regex' as const, query: 'canary.*7' },
      { mode: 'fulltext' as const, query: 'canary' },
    ]) {
      for (const projectId of [...projects, ...projects]) {
        const page = await engine.logs.search(
          { projectId, retentionDays },
          queryFor(text === undefined ? {} : { text }),
        );
        expect(page.entries.length).toBeGreaterThan(0);
        expect(page.entries.every(({ message }) => message.includes(projectId))).toBe(true);
      }
    }
  });

  it('are kept apart by the engine itself when a query names another project (S19)', async () => {
    const [own, foreign] = [randomUUID(), randomUUID()];
    await storeEntries(engine.logs, foreign, [entryAt(NOW_NS)]);
    const query = buildSearch({ projectId: foreign, oldestNs: 0n }, queryFor());
    expect(await engine.store.readTenant(foreign, query)).toHaveLength(1);
    expect(await engine.store.readTenant(own, query)).toHaveLength(0);
  });

  it('cannot write or read files through a read', async () => {
    for (const sql of ['TRUNCATE TABLE logs', "SELECT * FROM file('/etc/passwd', 'LineAsString')"]) {
      const read = engine.store.readTenant(randomUUID(), { sql, params: {}, resultRowsMax: 10 });
      await expect(read).rejects.toMatchObject({ store: 'clickhouse' });
    }
  });
});

describe('a failure', () => {
  it('of the connection is unavailable, for reads, inserts and counts', async () => {
    await using store = connectClickHouse({ ...engine.settings, CLICKHOUSE_URL: 'http://127.0.0.1:1' });
    const logs = new LogStore(store, { cursorSecret: CURSOR_SECRET, now: () => NOW_MS });
    const plan = makePlan([{ projectId: randomUUID(), entries: [entryAt(NOW_NS)] }]);
    const scope = { projectId: randomUUID(), retentionDays };
    await expect(logs.search(scope, queryFor())).rejects.toMatchObject({ kind: 'unavailable' });
    await expect(logs.insertPlan(plan.chunks, plan.token, 1)).rejects.toMatchObject({ kind: 'unavailable' });
    await expect(logs.countPlan(plan.range)).rejects.toMatchObject({ kind: 'unavailable' });
    expect(await store.ping()).toBe(false);
  });

  it('of the password is unavailable', async () => {
    await using store = connectClickHouse({ ...engine.settings, CLICKHOUSE_PASSWORD: 'wrong' });
    await expect(store.readInternal('SELECT 1')).rejects.toMatchObject({ kind: 'unavailable' });
    expect(await store.ping()).toBe(false);
  });

  it('of a regular expression says what is wrong with it, in an empty project too', async () => {
    const search = engine.logs.search(
      { projectId: randomUUID(), retentionDays },
      queryFor({ text: { mode: 'regex', query: '(a' } }),
    );
    await expect(search).rejects.toMatchObject({
      kind: 'invalid_query',
      message: 'expected a regular expression in RE2 syntax, got one that does not compile: missing ): (a',
    });
  });

  it('of a limit is too expensive', async () => {
    const read = engine.store.readTenant(randomUUID(), {
      sql: 'SELECT number FROM numbers(1000)',
      params: {},
      resultRowsMax: 10,
    });
    await expect(read).rejects.toMatchObject({ kind: 'too_expensive' });
  });
});
