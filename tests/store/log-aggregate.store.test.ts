import { randomUUID } from 'node:crypto';
import { buildTimeline } from '@logpond/db/aggregate-sql';
import { LEVELS } from '@logpond/schema/log-entry';
import type { CheckedEntry } from '@logpond/schema/log-entry';
import type { AggregateAnswer, AggregateQuery, LogFilter } from '@logpond/schema/log-query';
import { formatTimestampNs } from '@logpond/schema/timestamp';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { entryAt, EVERYTHING, HOUR_NS, NOW_NS, startEngine, storeEntries } from './log-store-fixture.ts';
import type { TestEngine } from './log-store-fixture.ts';

let engine: TestEngine;
const projectId = randomUUID();
const DAY_NS = 24n * HOUR_NS;
const WEEK_NS = 7n * DAY_NS;
const sent: CheckedEntry[] = fc.sample(
  fc.record({
    // Whole hours, their edges and anything between, over 40 days.
    timeNs: fc
      .tuple(
        fc.bigInt({ min: 0n, max: 960n }),
        fc.oneof(fc.constantFrom(0n, 1n, HOUR_NS - 1n), fc.bigInt({ min: 0n, max: HOUR_NS - 1n })),
      )
      .map(([hours, rest]) => NOW_NS - hours * HOUR_NS - rest),
    level: fc.integer({ min: 1, max: 5 }),
    service: fc.integer({ min: 0, max: 14 }).map((index) => `service-${index}`),
    message: fc.integer({ min: 0, max: 13 }).map((index) => `message ${index}`),
    metadataJson: fc.constant('{}'),
  }),
  { numRuns: 3000, seed: 11 },
);

beforeAll(async () => {
  engine = await startEngine();
  const half = sent.length / 2;
  await storeEntries(engine.logs, projectId, sent.slice(0, half));
  await storeEntries(engine.logs, projectId, sent.slice(half), { firstOffset: half + 1 });
  await storeEntries(engine.logs, randomUUID(), sent.slice(0, 100), { firstOffset: 10_000 });
});
afterAll(async () => {
  await engine.stop();
});

const retentionDays = 30;

function aggregateFor(query: Partial<AggregateQuery>): AggregateQuery {
  const base = {
    fromNs: NOW_NS - DAY_NS,
    toNs: NOW_NS,
    intervalMs: 3_600_000,
    weekly: false,
    filter: EVERYTHING,
  };
  return { ...base, ...query };
}

function select(query: AggregateQuery): CheckedEntry[] {
  const oldestNs = NOW_NS - BigInt(retentionDays) * DAY_NS;
  const { filter, fromNs, toNs } = query;
  return sent.filter(({ timeNs, service, level }) => {
    const name = LEVELS[level - 1] ?? 'debug';
    const isInRange = timeNs >= fromNs && timeNs <= toNs && timeNs >= oldestNs;
    const isService = filter.services.length === 0 || filter.services.includes(service);
    const isLevel = filter.levels.length === 0 || filter.levels.includes(name);
    return (
      isInRange &&
      isService &&
      isLevel &&
      !filter.notServices.includes(service) &&
      !filter.notLevels.includes(name)
    );
  });
}

function countBy(
  entries: CheckedEntry[],
  keyOf: (entry: CheckedEntry) => string,
): { key: string; count: number }[] {
  const groups = Map.groupBy(entries, keyOf);
  return [...groups]
    .map(([key, group]) => ({ key, count: group.length }))
    .toSorted((a, b) => b.count - a.count || (a.key < b.key ? -1 : 1))
    .slice(0, 10);
}

/** The answer, computed from what was sent. */
function expectedFor(query: AggregateQuery): AggregateAnswer {
  // Monday 1969-12-29 for weeks, the epoch for everything else.
  const originNs = query.weekly ? -3n * DAY_NS : 0n;
  const intervalNs = BigInt(query.intervalMs) * 1_000_000n;
  const startOf = (timeNs: bigint): bigint => ((timeNs - originNs) / intervalNs) * intervalNs + originNs;
  const entries = select(query);
  const byBucket = Map.groupBy(entries, ({ timeNs }) => startOf(timeNs));
  const timeseries: AggregateAnswer['timeseries'] = [];
  for (let startNs = startOf(query.fromNs); startNs <= query.toNs; startNs += intervalNs) {
    const inBucket = byBucket.get(startNs) ?? [];
    const countLevel = (wanted: number): number => inBucket.filter(({ level }) => level === wanted).length;
    const [debug, info, warn, error, critical] = [1, 2, 3, 4, 5].map(countLevel) as [
      number,
      number,
      number,
      number,
      number,
    ];
    const bucket = formatTimestampNs(startNs);
    timeseries.push({ bucket, total: inBucket.length, by_level: { debug, info, warn, error, critical } });
  }
  const errors = entries.filter(({ level }) => level >= 4);
  return {
    timeseries,
    top_services: countBy(entries, ({ service }) => service).map(({ key, count }) => ({
      service: key,
      count,
    })),
    top_errors: countBy(errors, ({ message }) => message).map(({ key, count }) => ({ message: key, count })),
  };
}

describe('an aggregation', () => {
  it('lists every bucket of its range once, in order, aligned, empty ones with zeros', async () => {
    const query = aggregateFor({ fromNs: NOW_NS - 50n * DAY_NS + 1n, toNs: NOW_NS, intervalMs: 86_400_000 });
    const { timeseries } = await engine.logs.aggregate({ projectId, retentionDays }, query);
    const first = Date.parse('2026-10-02T00:00:00Z');
    expect(timeseries.map(({ bucket }) => Date.parse(bucket))).toEqual(
      Array.from({ length: 51 }, (_, index) => first + index * 86_400_000),
    );
    expect(timeseries[0]).toEqual({
      bucket: '2026-10-02T00:00:00.000Z',
      total: 0,
      by_level: { debug: 0, info: 0, warn: 0, error: 0, critical: 0 },
    });
  });

  it('starts weeks on Monday', async () => {
    const query = aggregateFor({ fromNs: NOW_NS - 2n * WEEK_NS, intervalMs: 604_800_000, weekly: true });
    const { timeseries } = await engine.logs.aggregate({ projectId, retentionDays }, query);
    expect(timeseries.map(({ bucket }) => bucket)).toEqual([
      '2026-11-02T00:00:00.000Z',
      '2026-11-09T00:00:00.000Z',
      '2026-11-16T00:00:00.000Z',
    ]);
    expect(await engine.logs.aggregate({ projectId, retentionDays }, query)).toEqual(expectedFor(query));
  });

  it.each([
    ['a day, from the entries', aggregateFor({})],
    [
      'hours that begin and end within an hour',
      aggregateFor({ fromNs: NOW_NS - 3n * DAY_NS + 17n, toNs: NOW_NS - 23n }),
    ],
    ['whole hours', aggregateFor({ fromNs: NOW_NS - 3n * DAY_NS, toNs: NOW_NS - 1n })],
    ['more than the retention', aggregateFor({ fromNs: NOW_NS - 40n * DAY_NS, intervalMs: 21_600_000 })],
    [
      'only what is past the retention',
      aggregateFor({ fromNs: NOW_NS - 40n * DAY_NS, toNs: NOW_NS - 35n * DAY_NS }),
    ],
    ['minutes', aggregateFor({ fromNs: NOW_NS - 3n * DAY_NS, intervalMs: 60_000 })],
    [
      'a range within one second',
      aggregateFor({ fromNs: NOW_NS - HOUR_NS, toNs: NOW_NS - HOUR_NS, intervalMs: 1000 }),
    ],
  ])('counts exactly the stored entries: %s', async (_, query) => {
    expect(await engine.logs.aggregate({ projectId, retentionDays }, query)).toEqual(expectedFor(query));
  });

  it('counts the same from the roll-up and from the entries, whatever the range and filters', async () => {
    const offsets = fc.bigInt({ min: 0n, max: 35n * DAY_NS });
    const filter: fc.Arbitrary<LogFilter> = fc.record({
      services: fc.subarray(['service-1', 'service-2', 'nobody'], { maxLength: 2 }),
      levels: fc.subarray([...LEVELS], { maxLength: 2 }),
      notServices: fc.subarray(['service-1', 'service-3'], { maxLength: 1 }),
      notLevels: fc.subarray([...LEVELS], { maxLength: 1 }),
      notTexts: fc.constant([]),
      metadata: fc.constant([]),
    });
    const interval = fc.constantFrom(
      { intervalMs: 3_600_000, weekly: false },
      { intervalMs: 10_800_000, weekly: false },
      { intervalMs: 604_800_000, weekly: true },
    );
    let rolledUp = 0;
    const run = async (
      a: bigint,
      b: bigint,
      chosen: LogFilter,
      steps: { intervalMs: number; weekly: boolean },
    ): Promise<void> => {
      const query = {
        fromNs: NOW_NS - (a > b ? a : b),
        toNs: NOW_NS - (a > b ? b : a),
        filter: chosen,
        ...steps,
      };
      rolledUp += buildTimeline({ projectId, oldestNs: 0n }, query).sql.includes('logs_hourly') ? 1 : 0;
      expect(await engine.logs.aggregate({ projectId, retentionDays }, query)).toEqual(expectedFor(query));
    };
    await fc.assert(fc.asyncProperty(offsets, offsets, filter, interval, run), { numRuns: 60 });
    expect(rolledUp).toBeGreaterThan(20);
  });

  it('with a text filter counts only what matches', async () => {
    const filter = { ...EVERYTHING, text: { mode: 'fulltext' as const, query: 'message 7' } };
    const query = aggregateFor({ fromNs: NOW_NS - 5n * DAY_NS, filter });
    const { timeseries } = await engine.logs.aggregate({ projectId, retentionDays }, query);
    const expected = select(query).filter(({ message }) => message === 'message 7').length;
    expect(timeseries.reduce((sum, { total }) => sum + total, 0)).toBe(expected);
  });

  it('shows an entry in the hour that holds it even when its batch is stored twice by mistake of the writer', async () => {
    const project = randomUUID();
    const plan = await storeEntries(engine.logs, project, [entryAt(NOW_NS - 2n * DAY_NS)], {
      firstOffset: 77_777,
    });
    await engine.logs.insertPlan(plan.chunks, plan.token, plan.rows);
    const query = aggregateFor({ fromNs: NOW_NS - 4n * DAY_NS });
    const answer = await engine.logs.aggregate({ projectId: project, retentionDays }, query);
    expect(answer.top_services).toEqual([{ service: 'api', count: 1 }]);
  });
});
