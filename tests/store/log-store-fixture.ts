import { randomUUID } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { connectClickHouse } from '@logpond/db/clickhouse';
import type { ClickHouseStore } from '@logpond/db/clickhouse';
import { LogStore } from '@logpond/db/log-store';
import type { PlanRange } from '@logpond/db/log-store';
import { migrateClickHouse } from '@logpond/db/migrate';
import { decodeBlock } from '@logpond/log-block/decode';
import { BlockEncoder } from '@logpond/log-block/encode';
import { encodeSeq } from '@logpond/log-block/entry-id';
import { encodeNativePlan } from '@logpond/log-block/native';
import type { CheckedEntry } from '@logpond/schema/log-entry';
import type { LogFilter, LogQuery } from '@logpond/schema/log-query';
import { spawnClickHouse } from '@logpond/standalone/clickhouse-process';

/** A fixed "now" for stores and entries alike: a Saturday noon. */
export const NOW_MS = Date.parse('2026-11-21T12:00:00Z');
export const NOW_NS = BigInt(NOW_MS) * 1_000_000n;
export const HOUR_NS = 3_600_000_000_000n;
export const CURSOR_SECRET = 'a secret of the tests, 32 bytes long';

export const EVERYTHING: LogFilter = {
  services: [],
  levels: [],
  notServices: [],
  notLevels: [],
  notTexts: [],
  metadata: [],
};

export function queryFor(filter: Partial<LogFilter> = {}, rest: Partial<LogQuery> = {}): LogQuery {
  return { filter: { ...EVERYTHING, ...filter }, limit: 100, offset: 0, order: 'desc', ...rest };
}

export function entryAt(timeNs: bigint, rest: Partial<CheckedEntry> = {}): CheckedEntry {
  return { timeNs, level: 2, service: 'api', message: 'hello', metadataJson: '{}', ...rest };
}

type StoreSettings = Parameters<typeof connectClickHouse>[0];

export type TestEngine = {
  settings: StoreSettings;
  store: ClickHouseStore;
  logs: LogStore;
  stop: () => Promise<void>;
};

/** The real engine in a directory of its own, with the schema applied. */
export async function startEngine(): Promise<TestEngine> {
  const dataDir = await mkdtemp(join(tmpdir(), 'logpond-test-'));
  const engine = await spawnClickHouse({ dataDir });
  const settings: StoreSettings = {
    CLICKHOUSE_URL: engine.url,
    CLICKHOUSE_DATABASE: 'default',
    CLICKHOUSE_USER: engine.user,
    CLICKHOUSE_PASSWORD: engine.password,
    CLICKHOUSE_PROJECT_SETTING: 'log_comment',
  };
  const store = connectClickHouse(settings);
  await migrateClickHouse(store);
  const logs = new LogStore(store, { cursorSecret: CURSOR_SECRET, now: () => NOW_MS });
  const stop = async (): Promise<void> => {
    await store[Symbol.asyncDispose]();
    await engine.stop();
    await rm(dataDir, { recursive: true, force: true });
  };
  return { settings, store, logs, stop };
}

export type Plan = { chunks: Buffer[]; rows: number; token: string; range: PlanRange };

/**
 * One plan as the ingest worker makes it: one block, one run per project, offsets from `firstOffset` on. Its
 * token is its own, since tests reuse offsets: rows under a known token are dropped.
 */
export function makePlan(
  runs: { projectId: string; entries: CheckedEntry[] }[],
  place: { epoch?: number; shard?: number; firstOffset?: number; retentionClass?: number } = {},
): Plan {
  const { epoch = 1, shard = 0, firstOffset = 1, retentionClass = 30 } = place;
  const encoder = new BlockEncoder();
  for (const { projectId, entries } of runs) {
    encoder.beginRun(projectId, NOW_MS);
    for (const entry of entries) {
      encoder.appendEntry(entry);
    }
    encoder.endRun(100);
  }
  const block = decodeBlock(encoder.finish(NOW_MS).block);
  const { chunks, rows } = encodeNativePlan([{ block, firstOffset }], {
    epoch,
    shard,
    retentionClassOf: () => retentionClass,
  });
  const times = runs.flatMap(({ entries }) => entries.map(({ timeNs }) => timeNs));
  const range: PlanRange = {
    projectIds: runs.map(({ projectId }) => projectId),
    minTimeNs: times.reduce((least, time) => (time < least ? time : least)),
    maxTimeNs: times.reduce((greatest, time) => (time > greatest ? time : greatest)),
    shard,
    seqFrom: encodeSeq(epoch, firstOffset),
    seqTo: encodeSeq(epoch, firstOffset + rows),
  };
  return { chunks, rows, token: randomUUID(), range };
}

/** Stores entries of one project; returns the plan. */
export async function storeEntries(
  logs: LogStore,
  projectId: string,
  entries: CheckedEntry[],
  place?: Parameters<typeof makePlan>[1],
): Promise<Plan> {
  const plan = makePlan([{ projectId, entries }], place);
  await logs.insertPlan(plan.chunks, plan.token, plan.rows);
  return plan;
}
