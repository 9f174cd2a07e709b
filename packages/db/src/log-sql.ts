import type { LogFilter, LogQuery, SearchMode } from '@logpond/schema/log-query';
import { toTraceKey } from '@logpond/schema/trace-key';
import type { BoundQuery } from './clickhouse.ts';
import { parseFullText } from './full-text.ts';
import { matchMetadata } from './metadata-sql.ts';
import type { SearchPosition } from './search-cursor.ts';
import { SqlBindings } from './sql-bindings.ts';

/** The wall between tenants in SQL: whose entries a query may see, and how far back. */
export type ReadScope = {
  projectId: string;
  /** Start of the project's retention, ns since the epoch; nothing older is ever returned. */
  oldestNs: bigint;
};

/** Entries that are counted exactly; beyond them the total is a lower bound. */
const TOTAL_EXACT_MAX = 10_000;

/** Every text predicate is on this expression, which is the one the text index is built on. */
const FOLDED_MESSAGE = 'lowerUTF8(message)';
const ZERO_TRACE_KEY = '00000000-0000-0000-0000-000000000000';

const ENTRY_COLUMNS = `
  toUnixTimestamp64Nano(time) AS timeNs, toString(seq) AS seqText, shard, level, service, message, metadata,
  toString(trace_key) AS traceKey, trace_form AS traceForm, trace_text AS traceText,
  span_id AS spanId, session_id AS sessionId`;

/** One row as ENTRY_COLUMNS selects it; 64-bit integers as strings. */
export type EntryRow = {
  timeNs: string;
  seqText: string;
  shard: number;
  level: LogFilter['levels'][number];
  service: string;
  message: string;
  metadata: string;
  traceKey: string;
  traceForm: 'none' | 'uuid' | 'hex' | 'text';
  traceText: string;
  spanId: string;
  sessionId: string;
};

/** One page and one row more, from which the caller knows whether there is a next page. */
export function buildSearch(scope: ReadScope, query: LogQuery, after?: SearchPosition): BoundQuery {
  const bindings = new SqlBindings();
  const conditions = [scopeEntries(bindings, scope, query.filter), ...filterEntries(bindings, query.filter)];
  const [comparison, direction] = query.order === 'asc' ? ['>', 'ASC'] : ['<', 'DESC'];
  if (after !== undefined) {
    const time = bindTime(bindings, after.timeNs);
    // The first bound is contained in the second, but it is the one that the primary key can prune by.
    conditions.push(
      `time ${comparison}= ${time}`,
      `(time, seq) ${comparison} (${time}, ${bindings.bind('UInt64', after.seq.toString())})`,
    );
  }
  const limit = query.limit + 1;
  const sql = `SELECT ${ENTRY_COLUMNS} FROM logs WHERE ${conditions.join(' AND ')}
    ORDER BY time ${direction}, seq ${direction}
    LIMIT ${bindings.bind('UInt32', limit)} OFFSET ${bindings.bind('UInt32', query.offset)}`;
  return { sql, params: bindings.params, resultRowsMax: limit };
}

/**
 * How many entries match, as one TotalRow; counting stops at TOTAL_EXACT_MAX + 1. Even without a filter: the
 * engine's row policy makes a plain count() read every row (measured: 45 ms CPU per million entries).
 */
export function buildTotal(scope: ReadScope, filter: LogFilter): BoundQuery {
  const bindings = new SqlBindings();
  const where = [scopeEntries(bindings, scope, filter), ...filterEntries(bindings, filter)].join(' AND ');
  const sql = `SELECT least(count(), ${TOTAL_EXACT_MAX}) AS entries, count() > ${TOTAL_EXACT_MAX} AS isMore
    FROM (SELECT 1 FROM logs WHERE ${where} LIMIT ${TOTAL_EXACT_MAX + 1})`;
  return { sql, params: bindings.params, resultRowsMax: 1 };
}

/** `isMore`: there are more than `entries`. */
export type TotalRow = { entries: string; isMore: 0 | 1 };

/** The entry with this time (its millisecond, from the id), shard and seq. */
export function buildFindEntry(
  scope: ReadScope,
  place: { timeMs: number; shard: number; seq: bigint },
): BoundQuery {
  const bindings = new SqlBindings();
  const fromNs = BigInt(place.timeMs) * 1_000_000n;
  const bounds = { fromNs, toNs: fromNs + 999_999n };
  const sql = `SELECT ${ENTRY_COLUMNS} FROM logs WHERE ${scopeEntries(bindings, scope, bounds)}
    AND seq = ${bindings.bind('UInt64', place.seq.toString())} AND shard = ${bindings.bind('UInt8', place.shard)}
    LIMIT 1`;
  return { sql, params: bindings.params, resultRowsMax: 1 };
}

/** Project and time range; every query on `logs` starts with it. Bounds are inclusive. */
export function scopeEntries(
  bindings: SqlBindings,
  scope: ReadScope,
  range: { fromNs?: bigint; toNs?: bigint },
): string {
  const project = bindings.bind('UUID', scope.projectId);
  const fromNs = range.fromNs !== undefined && range.fromNs > scope.oldestNs ? range.fromNs : scope.oldestNs;
  const from = `project_id = ${project} AND time >= ${bindTime(bindings, fromNs)}`;
  return range.toNs === undefined ? from : `${from} AND time <= ${bindTime(bindings, range.toNs)}`;
}

/** All conditions of a filter but its time range; empty when there is none. */
export function filterEntries(bindings: SqlBindings, filter: LogFilter): string[] {
  const conditions = filterServicesAndLevels(bindings, filter);
  if (filter.traceId !== undefined) {
    conditions.push(matchTrace(bindings, filter.traceId));
  }
  if (filter.text !== undefined) {
    conditions.push(...matchTextOrTrace(bindings, filter.text.mode, filter.text.query));
  }
  for (const query of filter.notTexts) {
    const unwanted = matchText(bindings, filter.text?.mode ?? 'fulltext', query);
    if (unwanted !== undefined) {
      conditions.push(`NOT ${unwanted}`);
    }
  }
  for (const { path, values } of filter.metadata) {
    conditions.push(matchMetadata(bindings, path, values));
  }
  return conditions;
}

/** The filters that the hourly roll-up knows as well. */
export function filterServicesAndLevels(bindings: SqlBindings, filter: LogFilter): string[] {
  const lists = [
    ['service IN', filter.services],
    ['level IN', filter.levels],
    ['service NOT IN', filter.notServices],
    ['level NOT IN', filter.notLevels],
  ] as const;
  return lists
    .filter(([, values]) => values.length > 0)
    .map(([condition, values]) => `${condition} ${bindings.bind('Array(String)', values)}`);
}

/** A point of time as an expression of the column's own type. */
function bindTime(bindings: SqlBindings, timeNs: bigint): string {
  return `fromUnixTimestamp64Nano(${bindings.bind('Int64', timeNs.toString())}, 'UTC')`;
}

/** A full text that is a whole UUID or its 32-hex form also finds the entries of that trace. */
function matchTextOrTrace(bindings: SqlBindings, mode: SearchMode, query: string): string[] {
  const condition = matchText(bindings, mode, query);
  const whole = query.trim();
  if (condition === undefined || mode !== 'fulltext' || toTraceKey(whole) === undefined) {
    return condition === undefined ? [] : [condition];
  }
  return [`(${condition} OR ${matchTrace(bindings, whole)})`];
}

/** One condition on the message, in brackets; undefined when the text asks for nothing. */
function matchText(bindings: SqlBindings, mode: SearchMode, query: string): string | undefined {
  if (mode === 'regex') {
    const pattern = bindings.bind('String', query);
    // The constant makes a bad pattern fail even where there is no entry to try it on.
    return `(match(message, ${pattern}) AND match('', ${pattern}) IN (0, 1))`;
  }
  if (mode === 'substring') {
    return query === '' ? undefined : matchSubstring(bindings, query);
  }
  const { words, phrases, literal } = parseFullText(query);
  if (literal !== undefined) {
    return matchSubstring(bindings, literal);
  }
  const parts = phrases.map(
    (phrase) => `hasPhrase(${FOLDED_MESSAGE}, lowerUTF8(${bindings.bind('String', phrase)}))`,
  );
  if (words.length > 0) {
    parts.unshift(`hasAllTokens(${FOLDED_MESSAGE}, lowerUTF8(${bindings.bind('String', words.join(' '))}))`);
  }
  if (parts.length === 0) {
    return undefined;
  }
  return `(${parts.join(' AND ')})`;
}

function matchSubstring(bindings: SqlBindings, text: string): string {
  const pattern = `%${text.replace(/[\\%_]/g, String.raw`\$&`)}%`;
  return `(${FOLDED_MESSAGE} LIKE lowerUTF8(${bindings.bind('String', pattern)}))`;
}

/** A UUID and its 32-hex form in any letter case are one trace; any other text is compared as it was sent. */
export function matchTrace(bindings: SqlBindings, traceId: string): string {
  const hex = toTraceKey(traceId);
  if (hex === undefined) {
    return `(trace_form = 'text' AND trace_text = ${bindings.bind('String', traceId)})`;
  }
  const key = hex.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, '$1-$2-$3-$4-$5');
  const isKey = `trace_key = ${bindings.bind('UUID', key)}`;
  // Rows without such a trace hold the zero key too.
  return key === ZERO_TRACE_KEY
    ? `(${isKey} AND (trace_form IN ('uuid', 'hex') OR match(trace_text, '^[0-]{32,36}$')))`
    : `(${isKey})`;
}
