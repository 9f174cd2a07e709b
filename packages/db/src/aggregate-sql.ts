import type { AggregateQuery } from '@logpond/schema/log-query';
import type { BoundQuery } from './clickhouse.ts';
import { filterEntries, filterServicesAndLevels, scopeEntries } from './log-sql.ts';
import type { EntryRow, ReadScope } from './log-sql.ts';
import { SqlBindings } from './sql-bindings.ts';

const HOUR_NS = 3_600_000_000_000n;
const DAY_NS = 24n * HOUR_NS;
/** 1969-12-29, the Monday of the week that holds the epoch: no entry is older, so no quotient is negative. */
const FIRST_MONDAY_NS = -3n * DAY_NS;
/** From here on the roll-up is worth its two raw edges. */
const ROLL_UP_RANGE_MIN_NS = DAY_NS;
/** The last whole hour that the roll-up's column (seconds in 32 bits) can hold; entries of 2106 are counted singly. */
const ROLL_UP_END_NS = ((2n ** 32n * 1_000_000_000n) / HOUR_NS) * HOUR_NS;
/** An interval that outlasts every time there is puts everything into one bucket, whatever its length. */
const INTERVAL_MAX_NS = 2n ** 63n - 1n;
const BUCKETS_MAX = 10_080;
const LEVELS_COUNT = 5;
const TOP_MAX = 10;

/** `bucketNs`: start of the bucket. */
export type TimelineRow = { bucketNs: string; level: EntryRow['level']; entries: string };
export type TopServiceRow = { service: string; entries: string };
export type TopErrorRow = { message: string; entries: string };

/** Start of the bucket that holds this time: multiples of the interval in UTC, weeks from a Monday. */
export function startOfBucket(timeNs: bigint, query: Pick<AggregateQuery, 'intervalMs' | 'weekly'>): bigint {
  const intervalNs = BigInt(query.intervalMs) * 1_000_000n;
  const originNs = query.weekly ? FIRST_MONDAY_NS : 0n;
  const remainder = (timeNs - originNs) % intervalNs;
  return timeNs - (remainder < 0n ? remainder + intervalNs : remainder);
}

/** Entries per bucket and level; empty buckets are not among the rows. */
export function buildTimeline(scope: ReadScope, query: AggregateQuery): BoundQuery {
  const bindings = new SqlBindings();
  const intervalNs = BigInt(query.intervalMs) * 1_000_000n;
  const origin = bindings.bind('Int64', (query.weekly ? FIRST_MONDAY_NS : 0n).toString());
  const boundNs = intervalNs < INTERVAL_MAX_NS ? intervalNs : INTERVAL_MAX_NS;
  const interval = bindings.bind('Int64', boundNs.toString());
  const rows = countEntries(bindings, scope, query, intervalNs % HOUR_NS === 0n);
  const sql = `SELECT intDiv(ns - ${origin}, ${interval}) * ${interval} + ${origin} AS bucketNs, level,
    sum(n) AS entries FROM (${rows}) GROUP BY bucketNs, level`;
  return { sql, params: bindings.params, resultRowsMax: (BUCKETS_MAX + 1) * LEVELS_COUNT };
}

/** The services with most entries, ties by name. */
export function buildTopServices(scope: ReadScope, query: AggregateQuery): BoundQuery {
  const bindings = new SqlBindings();
  const sql = `SELECT service, sum(n) AS entries FROM (${countEntries(bindings, scope, query, true)})
    GROUP BY service ORDER BY entries DESC, service LIMIT ${TOP_MAX}`;
  return { sql, params: bindings.params, resultRowsMax: TOP_MAX };
}

/** The most frequent messages of levels error and critical, ties by text. */
export function buildTopErrors(scope: ReadScope, query: AggregateQuery): BoundQuery {
  const bindings = new SqlBindings();
  const conditions = [scopeEntries(bindings, scope, query), ...filterEntries(bindings, query.filter)];
  const sql = `SELECT message, count() AS entries FROM logs
    WHERE ${conditions.join(' AND ')} AND level IN ('error', 'critical')
    GROUP BY message ORDER BY entries DESC, message LIMIT ${TOP_MAX}`;
  return { sql, params: bindings.params, resultRowsMax: TOP_MAX };
}

/** A sub-select of (ns, service, level, n): single entries, or whole hours of the roll-up where it may. */
function countEntries(
  bindings: SqlBindings,
  scope: ReadScope,
  query: AggregateQuery,
  isHourEnough: boolean,
): string {
  const hours = isHourEnough ? findWholeHours(scope, query) : undefined;
  if (hours === undefined) {
    return countRaw(bindings, scope, query, filterEntries(bindings, query.filter));
  }
  const filters = filterServicesAndLevels(bindings, query.filter);
  const rolledUp = [
    `project_id = ${bindings.bind('UUID', scope.projectId)}`,
    `hour >= ${bindHour(bindings, hours.startNs)}`,
    `hour < ${bindHour(bindings, hours.endNs)}`,
    ...filters,
  ];
  // The ends of the range that are no whole hours; empty ranges cost one look at the primary key.
  const head = { fromNs: query.fromNs, toNs: hours.startNs - 1n };
  const tail = { fromNs: hours.endNs, toNs: query.toNs };
  return `SELECT toInt64(toUnixTimestamp(hour)) * 1000000000 AS ns, service, level, entries AS n
    FROM logs_hourly WHERE ${rolledUp.join(' AND ')}
    UNION ALL ${countRaw(bindings, scope, head, filters)}
    UNION ALL ${countRaw(bindings, scope, tail, filters)}`;
}

function countRaw(
  bindings: SqlBindings,
  scope: ReadScope,
  range: { fromNs: bigint; toNs: bigint },
  filters: readonly string[],
): string {
  return `SELECT toUnixTimestamp64Nano(time) AS ns, service, level, toUInt64(1) AS n
    FROM logs WHERE ${[scopeEntries(bindings, scope, range), ...filters].join(' AND ')}`;
}

/** The hours [startNs, endNs) that lie wholly in the range; undefined when the roll-up cannot answer. */
function findWholeHours(
  scope: ReadScope,
  query: AggregateQuery,
): { startNs: bigint; endNs: bigint } | undefined {
  const { text, notTexts, traceId, metadata } = query.filter;
  const isPlain =
    text === undefined && traceId === undefined && notTexts.length === 0 && metadata.length === 0;
  const fromNs = query.fromNs > scope.oldestNs ? query.fromNs : scope.oldestNs;
  if (!isPlain || fromNs < 0n || query.toNs - fromNs <= ROLL_UP_RANGE_MIN_NS) {
    return undefined;
  }
  const startNs = ((fromNs + HOUR_NS - 1n) / HOUR_NS) * HOUR_NS;
  const endNs = ((query.toNs + 1n) / HOUR_NS) * HOUR_NS;
  if (startNs >= ROLL_UP_END_NS) return undefined;
  return { startNs, endNs: endNs < ROLL_UP_END_NS ? endNs : ROLL_UP_END_NS };
}

function bindHour(bindings: SqlBindings, timeNs: bigint): string {
  return `toDateTime(${bindings.bind('UInt32', Number(timeNs / 1_000_000_000n))}, 'UTC')`;
}
