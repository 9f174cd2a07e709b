import { randomUUID } from 'node:crypto';
import { AlertHistory } from '@logpond/db/alert-history';
import type { HistoryRow } from '@logpond/db/alert-history';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startEngine } from './log-store-fixture.ts';
import type { TestEngine } from './log-store-fixture.ts';

type Firing = Extract<HistoryRow, { type: 'firing' }>;
type Delivery = Extract<HistoryRow, { type: 'delivery' }>;

const DAY_MS = 86_400_000;
/** Whole seconds, within the time that the history is kept. */
const START_MS = Math.floor(Date.now() / 1_000) * 1_000 - DAY_MS;

let engine: TestEngine;
let history: AlertHistory;
beforeAll(async () => {
  engine = await startEngine();
  history = new AlertHistory(engine.store);
});
afterAll(async () => engine.stop());

function firing(projectId: string, rest: Partial<Firing> = {}): Firing {
  return {
    type: 'firing',
    projectId,
    ruleId: randomUUID(),
    ruleName: 'Größe "errors"',
    firingId: randomUUID(),
    startedAtMs: START_MS,
    resolvedAtMs: null,
    count: 57,
    threshold: 50,
    timeWindow: '5m',
    version: 1,
    ...rest,
  };
}

function delivery({ projectId, firingId, startedAtMs }: Firing, rest: Partial<Delivery> = {}): Delivery {
  return {
    type: 'delivery',
    projectId,
    firingId,
    startedAtMs,
    kind: 'fired',
    repeat: 0,
    channel: 'email',
    target: 'ops@example.org',
    status: 'sent',
    attempts: 1,
    lastError: null,
    atMs: START_MS + 900,
    ...rest,
  };
}

describe('the history of alerts', () => {
  it('shows a firing once with what is known of it last, however often and in whatever order it was written', async () => {
    const projectId = randomUUID();
    const fired = firing(projectId);
    const resolved = {
      ...fired,
      resolvedAtMs: START_MS + 61_000,
      count: 80,
      peak: 80,
      version: 1_000_000_000,
    };
    const rows: HistoryRow[] = [
      resolved,
      fired,
      delivery(fired, { status: 'sent', attempts: 3, lastError: null, atMs: START_MS + 5_000 }),
      delivery(fired, { status: 'retrying', attempts: 4, lastError: '451 later', atMs: START_MS + 9_000 }),
      delivery(fired, { status: 'sent', attempts: 2, atMs: START_MS + 4_000 }),
      delivery(fired, {
        channel: 'webhook',
        target: 'https://a.example/x',
        status: 'failed',
        attempts: 10,
        lastError: 'x'.repeat(5_000),
        atMs: START_MS + 7_000,
      }),
      delivery(fired, { kind: 'resolved', status: 'not_configured', atMs: START_MS + 61_500 }),
    ];
    for (const row of rows) await history.insert([row]);
    await history.insert(rows.toReversed());
    const page = await history.list(projectId, { limit: 10 });
    const iso = (ms: number): string => new Date(ms).toISOString();
    const sent = { kind: 'fired', repeat: 0, channel: 'email', target: 'ops@example.org' };
    expect(page).toEqual({
      nextCursor: null,
      history: [
        {
          id: fired.firingId,
          ruleId: fired.ruleId,
          ruleName: fired.ruleName,
          startedAt: iso(START_MS),
          resolvedAt: iso(START_MS + 61_000),
          count: 80,
          peak: 80,
          threshold: 50,
          timeWindow: '5m',
          deliveries: [
            { ...sent, status: 'sent', attempts: 3, lastError: null, at: iso(START_MS + 5_000) },
            {
              ...sent,
              channel: 'webhook',
              target: 'https://a.example/x',
              status: 'failed',
              attempts: 10,
              lastError: 'x'.repeat(1_000),
              at: iso(START_MS + 7_000),
            },
            {
              ...sent,
              kind: 'resolved',
              status: 'not_configured',
              attempts: 1,
              lastError: null,
              at: iso(START_MS + 61_500),
            },
          ],
        },
      ],
    });
  });

  it('pages through firings of one moment without skipping or repeating one, while more are written', async () => {
    const projectId = randomUUID();
    // Three moments of 20 each; ids of one moment are in no order that a client could know.
    const firings = Array.from({ length: 60 }, (_, n) =>
      firing(projectId, { startedAtMs: START_MS + Math.floor(n / 20) * 1_000 }),
    );
    await history.insert(firings);
    const seen: string[] = [];
    let cursor: string | undefined;
    for (let page = 0; page < 20; page += 1) {
      const answer = await history.list(projectId, { limit: 7, ...(cursor === undefined ? {} : { cursor }) });
      seen.push(...answer.history.map(({ id }) => id));
      await history.insert([firing(projectId, { startedAtMs: START_MS + 5_000 })]);
      if (answer.nextCursor === null) break;
      cursor = answer.nextCursor;
    }
    expect(seen).toHaveLength(60);
    expect(new Set(seen)).toEqual(new Set(firings.map(({ firingId }) => firingId)));
    const times = (await history.list(projectId, { limit: 100 })).history.map(({ startedAt }) => startedAt);
    expect(times).toEqual(times.toSorted().toReversed());
  });

  it('finds by rule and by the time of the start, both ends included, and never another project’s', async () => {
    const projectId = randomUUID();
    const ruleId = randomUUID();
    const firings = Array.from({ length: 5 }, (_, n) =>
      firing(projectId, { startedAtMs: START_MS + n * 1_000, ...(n % 2 === 0 ? { ruleId } : {}) }),
    );
    const foreign = firing(randomUUID(), { ruleId });
    await history.insert([...firings, foreign, delivery(foreign)]);
    const starts = async (query: object): Promise<number[]> => {
      const page = await history.list(projectId, { limit: 100, ...query });
      return page.history.map(({ startedAt }) => (Date.parse(startedAt) - START_MS) / 1_000);
    };
    expect(await starts({})).toEqual([4, 3, 2, 1, 0]);
    expect(await starts({ ruleId })).toEqual([4, 2, 0]);
    expect(await starts({ fromMs: START_MS + 1_000, toMs: START_MS + 3_000 })).toEqual([3, 2, 1]);
    expect(await starts({ ruleId, fromMs: START_MS + 1_000 })).toEqual([4, 2]);
    expect(await starts({ ruleId: randomUUID() })).toEqual([]);
  });

  it('shows the newest 50 deliveries of a firing, oldest of them first', async () => {
    const projectId = randomUUID();
    const [long, short] = [firing(projectId), firing(projectId)];
    const repeats = Array.from({ length: 70 }, (_, n) =>
      delivery(long, { kind: 'renotified', repeat: n + 1, atMs: START_MS + n * 60_000 }),
    );
    await history.insert([long, short, ...repeats, delivery(short)]);
    const page = await history.list(projectId, { limit: 10 });
    const byId = new Map(page.history.map((entry) => [entry.id, entry.deliveries]));
    expect(byId.get(long.firingId)?.map(({ repeat }) => repeat)).toEqual(
      Array.from({ length: 50 }, (_, n) => n + 21),
    );
    expect(byId.get(short.firingId)).toHaveLength(1);
  });

  it('its tables are synced on insert and after merges, and are kept 400 days', async () => {
    const tables = await engine.store.readInternal<{ name: string; sql: string }>(
      `SELECT name, create_table_query AS sql FROM system.tables
       WHERE database = currentDatabase() AND name IN ('alert_firings', 'alert_deliveries') ORDER BY name`,
    );
    expect(tables.map(({ name }) => name)).toEqual(['alert_deliveries', 'alert_firings']);
    for (const { sql } of tables) {
      for (const part of [
        'fsync_after_insert = 1',
        'fsync_part_directory = 1',
        'min_rows_to_fsync_after_merge = 1',
        'old_parts_lifetime = 600',
        'toIntervalDay(400)',
      ]) {
        expect(sql).toContain(part);
      }
    }
  });
});
