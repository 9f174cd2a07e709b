import type { LogFilter, LogQuery } from '@logpond/schema/log-query';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { buildTimeline, buildTopErrors, buildTopServices } from './aggregate-sql.ts';
import type { BoundQuery } from './clickhouse.ts';
import { buildFindEntry, buildSearch, buildTotal } from './log-sql.ts';

const scope = { projectId: '11111111-1111-4111-8111-111111111111', oldestNs: 1_000_000_000n };
const everything: LogFilter = {
  services: [],
  levels: [],
  notServices: [],
  notLevels: [],
  notTexts: [],
  metadata: [],
};

function searchFor(filter: Partial<LogFilter>, rest: Partial<LogQuery> = {}): LogQuery {
  return { filter: { ...everything, ...filter }, limit: 10, offset: 0, order: 'desc', ...rest };
}

function buildAll(filter: Partial<LogFilter>): BoundQuery[] {
  const whole = { ...everything, ...filter };
  const range = { fromNs: 5_000_000_000n, toNs: 500_000_000_000_000n };
  const aggregate = { filter: whole, ...range, intervalMs: 3_600_000, weekly: false };
  return [
    buildSearch(scope, searchFor(filter)),
    buildSearch(scope, searchFor(filter, { order: 'asc' }), { timeNs: 7n, seq: 9n }),
    buildTotal(scope, whole),
    buildFindEntry(scope, { timeMs: 5, shard: 1, seq: 7n }),
    buildTimeline(scope, aggregate),
    buildTopServices(scope, aggregate),
    buildTopErrors(scope, aggregate),
  ];
}

/** A word that is in no SQL text of ours. */
const MARK = 'zqx';
const marked = fc.string({ unit: 'binary', maxLength: 20 }).map((text) => `${text}${MARK}${text}`);

describe('a tenant query', () => {
  it('reads every table within one project and its retention', () => {
    for (const { sql, params } of buildAll({ levels: ['error'] })) {
      const tables = sql.match(/FROM (?:logs|logs_hourly)\b/g) ?? [];
      expect(tables.length).toBeGreaterThan(0);
      expect(sql.match(/project_id = \{p\d+:UUID\} AND (?:time|hour) >= /g)).toHaveLength(tables.length);
      expect(Object.values(params)).toContain(scope.projectId);
    }
  });

  it('never looks further back than the retention', () => {
    const { params } = buildSearch(scope, searchFor({ fromNs: 0n }));
    expect(Object.values(params)).toContain('1000000000');
    expect(Object.values(params)).not.toContain('0');
  });

  it('holds nothing of what the user wrote (S21)', () => {
    const modes = fc.constantFrom('fulltext' as const, 'substring' as const, 'regex' as const);
    fc.assert(
      fc.property(marked, modes, (text, mode) => {
        const filter = {
          services: [text],
          notServices: [text],
          text: { mode, query: text },
          notTexts: [text],
          traceId: text,
          metadata: [{ path: `${text}.${text}`, values: [text, '1.5', 'null'] }],
        };
        for (const { sql } of buildAll(filter)) {
          expect(sql).not.toContain(MARK);
        }
      }),
    );
  });

  it('binds every parameter that it names, and no other', () => {
    const filter = {
      text: { mode: 'fulltext' as const, query: 'a "b c" d' },
      metadata: [{ path: 'x.y', values: ['1'] }],
    };
    for (const { sql, params } of buildAll(filter)) {
      const named = new Set([...sql.matchAll(/\{(p\d+):/g)].map(([, name]) => name));
      expect(named).toEqual(new Set(Object.keys(params)));
    }
  });
});

describe('the search', () => {
  it('asks for one row more than the page', () => {
    const { sql, resultRowsMax } = buildSearch(scope, searchFor({}, { limit: 1000 }));
    expect(resultRowsMax).toBe(1001);
    expect(sql).toMatch(/ORDER BY time DESC, seq DESC\s+LIMIT/);
  });

  it('prunes by time beside comparing the whole position', () => {
    const { sql } = buildSearch(scope, searchFor({}), { timeNs: 7n, seq: 9n });
    expect(sql).toMatch(/time <= fromUnixTimestamp64Nano\(\S+ 'UTC'\) AND \(time, seq\) < /);
    const ascending = buildSearch(scope, searchFor({}, { order: 'asc' }), { timeNs: 7n, seq: 9n });
    expect(ascending.sql).toMatch(/time >= fromUnixTimestamp64Nano\(\S+ 'UTC'\) AND \(time, seq\) > /);
  });

  it('leaves out conditions for text that asks for nothing', () => {
    const { sql } = buildSearch(
      scope,
      searchFor({ text: { mode: 'fulltext', query: '  ' }, notTexts: [''] }),
    );
    expect(sql).not.toContain('lowerUTF8');
  });
});

describe('the chart', () => {
  const day = 86_400_000_000_000n;
  const toNs = 20_000n * day;
  const timeline = (filter: Partial<LogFilter>, fromNs: bigint, intervalMs: number): string =>
    buildTimeline(scope, { filter: { ...everything, ...filter }, fromNs, toNs, intervalMs, weekly: false })
      .sql;

  it('comes from the roll-up over more than a day, by whole hours, with filters that it knows', () => {
    expect(timeline({ levels: ['error'], notServices: ['x'] }, toNs - 2n * day, 3_600_000)).toContain(
      'logs_hourly',
    );
    expect(timeline({}, toNs - 2n * day, 7_200_000)).toContain('logs_hourly');
  });

  it('comes from the entries otherwise', () => {
    expect(timeline({}, toNs - day, 3_600_000)).not.toContain('logs_hourly');
    expect(timeline({}, toNs - 2n * day, 1_800_000)).not.toContain('logs_hourly');
    for (const filter of [
      { text: { mode: 'fulltext' as const, query: 'x' } },
      { notTexts: ['x'] },
      { traceId: 'x' },
      { metadata: [{ path: 'a', values: ['1'] }] },
    ]) {
      expect(timeline(filter, toNs - 2n * day, 3_600_000)).not.toContain('logs_hourly');
    }
  });
});
