import { formatTimestampNs } from '@logpond/schema/timestamp';
import type { ClickHouseStore } from './clickhouse.ts';
import { scopeEntries } from './log-sql.ts';
import type { ReadScope } from './log-sql.ts';
import { SqlBindings } from './sql-bindings.ts';

const HOUR_NS = 3_600_000_000_000n;
const DAY_NS = 24n * HOUR_NS;
/** Newest entries whose sizes stand for all. */
const SAMPLE_ENTRIES = 1_000;
/** The roll-up's hours are seconds in 32 bits. */
const ROLL_UP_HOUR_MAX = 2 ** 32 - 1;

/** What of a project can be found. `bytes`: an estimate of what it takes on disk; times are RFC 3339. */
export type ProjectStats = { entries: number; bytes: number; oldest: string | null; newest: string | null };

/**
 * Counts a project's entries within its retention, for the price of a page: whole hours come from the roll-up, the
 * ends from the primary key, and the bytes are the mean size of the newest 1,000 entries times their number times
 * the compression of the whole table.
 *
 * @throws {StoreError} `unavailable`, or `too_expensive` for an hour of entries that cannot be read in time.
 */
export async function readProjectStats(
  clickhouse: ClickHouseStore,
  project: { projectId: string; retentionDays: number },
  nowMs: number,
): Promise<ProjectStats> {
  const oldestNs = BigInt(Math.trunc(nowMs)) * 1_000_000n - BigInt(project.retentionDays) * DAY_NS;
  const scope: ReadScope = { projectId: project.projectId, oldestNs: oldestNs > 0n ? oldestNs : 0n };
  const [entries, oldestText, sample, compression] = await Promise.all([
    countEntries(clickhouse, scope),
    findOldest(clickhouse, scope),
    sampleNewest(clickhouse, scope),
    readCompression(clickhouse),
  ]);
  return {
    entries,
    bytes: Math.round(entries * sample.bytesMean * compression),
    oldest: oldestText,
    newest: sample.newest,
  };
}

/** The hour that the retention cuts through is counted entry by entry, all later ones from the roll-up. */
async function countEntries(clickhouse: ClickHouseStore, scope: ReadScope): Promise<number> {
  const bindings = new SqlBindings();
  const startNs = ((scope.oldestNs + HOUR_NS - 1n) / HOUR_NS) * HOUR_NS;
  const hour = Math.min(Number(startNs / 1_000_000_000n), ROLL_UP_HOUR_MAX);
  const sql = `SELECT sum(n) AS entries FROM (
    SELECT entries AS n FROM logs_hourly WHERE project_id = ${bindings.bind('UUID', scope.projectId)}
      AND hour >= toDateTime(${bindings.bind('UInt32', hour)}, 'UTC')
    UNION ALL SELECT toUInt64(1) AS n FROM logs WHERE ${scopeEntries(bindings, scope, { toNs: startNs - 1n })})`;
  const query = { sql, params: bindings.params, resultRowsMax: 1 };
  const [row] = await clickhouse.readTenant<{ entries: string }>(scope.projectId, query);
  return Number(row?.entries ?? 0);
}

async function findOldest(clickhouse: ClickHouseStore, scope: ReadScope): Promise<string | null> {
  const bindings = new SqlBindings();
  const sql = `SELECT toUnixTimestamp64Nano(time) AS timeNs FROM logs
    WHERE ${scopeEntries(bindings, scope, {})} ORDER BY time, seq LIMIT 1`;
  const query = { sql, params: bindings.params, resultRowsMax: 1 };
  const [row] = await clickhouse.readTenant<{ timeNs: string }>(scope.projectId, query);
  return row === undefined ? null : formatTimestampNs(BigInt(row.timeNs));
}

async function sampleNewest(
  clickhouse: ClickHouseStore,
  scope: ReadScope,
): Promise<{ newest: string | null; bytesMean: number }> {
  const bindings = new SqlBindings();
  const sql = `SELECT count() AS entries, max(timeNs) AS newestNs, sum(bytes) AS bytesSum FROM (
    SELECT toUnixTimestamp64Nano(time) AS timeNs, byteSize(*) AS bytes FROM logs
    WHERE ${scopeEntries(bindings, scope, {})} ORDER BY time DESC, seq DESC LIMIT ${SAMPLE_ENTRIES})`;
  const query = { sql, params: bindings.params, resultRowsMax: 1 };
  type Row = { entries: string; newestNs: string; bytesSum: string };
  const [row] = await clickhouse.readTenant<Row>(scope.projectId, query);
  const entries = Number(row?.entries ?? 0);
  if (row === undefined || entries === 0) return { newest: null, bytesMean: 0 };
  return { newest: formatTimestampNs(BigInt(row.newestNs)), bytesMean: Number(row.bytesSum) / entries };
}

/** Bytes on disk for a byte of entries, over the whole table; 1 while it is empty. */
async function readCompression(clickhouse: ClickHouseStore): Promise<number> {
  const sql = `SELECT sum(bytes_on_disk) AS stored, sum(data_uncompressed_bytes) AS raw FROM system.parts
    WHERE active AND database = currentDatabase() AND table = 'logs'`;
  const [row] = await clickhouse.readInternal<{ stored: string; raw: string }>(sql);
  const raw = Number(row?.raw ?? 0);
  return raw === 0 ? 1 : Number(row?.stored ?? 0) / raw;
}
