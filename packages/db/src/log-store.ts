import type { ClickHouseSettings } from '@clickhouse/client';
import { decodeEntryId, decodeSeq, encodeEntryId, encodeSeq } from '@logpond/log-block/entry-id';
import type { StoredEntry } from '@logpond/log-block/entry-json';
import { NATIVE_COLUMNS } from '@logpond/log-block/native';
import type { AggregateAnswer, AggregateQuery, LogQuery } from '@logpond/schema/log-query';
import { formatTimestampNs } from '@logpond/schema/timestamp';
import { buildTimeline, buildTopErrors, buildTopServices, startOfBucket } from './aggregate-sql.ts';
import type { TimelineRow, TopErrorRow, TopServiceRow } from './aggregate-sql.ts';
import type { ClickHouseStore } from './clickhouse.ts';
import { buildFindEntry, buildSearch, buildTotal } from './log-sql.ts';
import type { EntryRow, ReadScope, TotalRow } from './log-sql.ts';
import { decodeSearchCursor, encodeSearchCursor } from './search-cursor.ts';
import type { CursorBinding, SearchPosition } from './search-cursor.ts';

/** Whose entries are read; `withProjectId` puts the project's id into each of them. */
export type ProjectScope = { projectId: string; retentionDays: number; withProjectId?: boolean };

export type SearchPage = {
  entries: StoredEntry[];
  hasMore: boolean;
  nextCursor: string | null;
  total: number;
  totalRelation: 'eq' | 'gte';
};

/**
 * The entries of one plan: seq in [seqFrom, seqTo) of one shard, with the projects and times its runs name. `hours`
 * are the hours (UTC, seconds since 1970) that the times lie in: a plan of today with one entry of last month is
 * then counted without reading the month.
 */
export type PlanRange = {
  projectIds: string[];
  minTimeNs: bigint;
  maxTimeNs: bigint;
  hours?: readonly number[] | undefined;
  shard: number;
  seqFrom: bigint;
  seqTo: bigint;
};

/** Entries that are there, and rows, an entry stored twice counted twice: a missing one and a double one must not cancel out. */
export type PlanCount = { entries: number; rows: number };

const DAY_NS = 86_400_000_000_000n;

/**
 * One plan becomes one block on every try: a retry that was cut differently stored rows twice. So nothing
 * that forms blocks is left to a server's defaults, and neither is what decides about duplicates.
 */
const INSERT_SETTINGS: ClickHouseSettings = {
  async_insert: 0,
  insert_deduplicate: 1,
  deduplicate_blocks_in_dependent_materialized_views: 1,
  max_insert_block_size: '1048576',
  min_insert_block_size_rows: '1048576',
  min_insert_block_size_bytes: '1073741824',
  max_insert_threads: '1',
  // One batch of a project that keeps 10 years may span 123 partitions, and all retention classes together 250.
  // The default of 100 refused such a plan for ever, and with it whatever lay behind it in its shard.
  max_partitions_per_insert_block: '1000',
};

const INSERT_SQL = `INSERT INTO logs (${NATIVE_COLUMNS.map(({ name }) => name).join(', ')}) FORMAT Native`;

/** Log entries in ClickHouse: written by plan, read by project. Throws StoreError. */
export class LogStore {
  readonly #clickhouse: ClickHouseStore;
  readonly #cursorSecret: string;
  readonly #now: () => number;

  /** `cursorSecret`: at least 32 bytes, the same in every process that answers searches. */
  constructor(clickhouse: ClickHouseStore, options: { cursorSecret: string; now?: () => number }) {
    this.#clickhouse = clickhouse;
    this.#cursorSecret = options.cursorSecret;
    this.#now = options.now ?? Date.now;
  }

  /**
   * Stores the rows of one plan, given as one Native block in any number of chunks; with a token that was
   * stored before, nothing. `unavailable` means that the outcome is unknown; `invalid_query` that these rows
   * fail every time (the message holds ClickHouse's code).
   */
  async insertPlan(chunks: Buffer[], token: string, rows: number): Promise<void> {
    if (rows > 0) {
      await this.#clickhouse.insert(INSERT_SQL, chunks, {
        ...INSERT_SETTINGS,
        insert_deduplication_token: token,
      });
    }
  }

  /** What of a plan is stored. */
  async countPlan(range: PlanRange): Promise<PlanCount> {
    const sql = `SELECT count() AS rows, uniqExact(seq) AS entries FROM logs WHERE ${planCondition(range)}`;
    const [row] = await this.#clickhouse.readInternal<{ rows: string; entries: string }>(
      sql,
      bindPlan(range),
    );
    return { rows: Number(row?.rows ?? 0), entries: Number(row?.entries ?? 0) };
  }

  /** Offsets in the shard of the plan's rows that are stored. */
  async listPlanOffsets(range: PlanRange): Promise<Set<number>> {
    const sql = `SELECT toString(seq) AS seqText FROM logs WHERE ${planCondition(range)}`;
    const rows = await this.#clickhouse.readInternal<{ seqText: string }>(sql, bindPlan(range));
    return new Set(rows.map(({ seqText }) => decodeSeq(BigInt(seqText)).offset));
  }

  /** The greatest seq stored of each shard that has any; reads the shard and seq columns of all rows. */
  async findMaxSeqs(): Promise<Map<number, bigint>> {
    const sql = 'SELECT shard, toString(max(seq)) AS seqText FROM logs GROUP BY shard';
    const rows = await this.#clickhouse.readInternal<{ shard: number; seqText: string }>(sql);
    return new Map(rows.map(({ shard, seqText }) => [shard, BigInt(seqText)]));
  }

  /** One page; a cursor made for another project, filter or order is `invalid_query`. */
  async search(scope: ProjectScope, query: LogQuery): Promise<SearchPage> {
    const binding: CursorBinding = { secret: this.#cursorSecret, projectId: scope.projectId, ...query };
    const after = query.cursor === undefined ? undefined : decodeSearchCursor(query.cursor, binding);
    const readScope = this.#readScope(scope);
    const [rows, [counted]] = await Promise.all([
      this.#clickhouse.readTenant<EntryRow>(scope.projectId, buildSearch(readScope, query, after)),
      this.#clickhouse.readTenant<TotalRow>(scope.projectId, buildTotal(readScope, query.filter)),
    ]);
    const page = rows.slice(0, query.limit);
    const last = page.at(-1);
    const hasMore = rows.length > query.limit && last !== undefined;
    // Entries that arrived between the two queries must not make the total smaller than the page.
    const seen = after === undefined && page.length > 0 ? query.offset + rows.length : 0;
    return {
      entries: page.map((row) => toStoredEntry(row, scope)),
      hasMore,
      nextCursor: hasMore ? encodeSearchCursor(positionOf(last), binding) : null,
      total: Math.max(Number(counted?.entries ?? 0), seen),
      totalRelation: counted?.isMore === 1 ? 'gte' : 'eq',
    };
  }

  /** The entry with this id, undefined when the project holds no such entry or the id is none of ours. */
  async findEntry(scope: ProjectScope, id: string): Promise<StoredEntry | undefined> {
    const identity = decodeEntryId(id);
    if (identity === undefined) {
      return undefined;
    }
    const { timeMs, shard, epoch, offset } = identity;
    const query = buildFindEntry(this.#readScope(scope), { timeMs, shard, seq: encodeSeq(epoch, offset) });
    const [row] = await this.#clickhouse.readTenant<EntryRow>(scope.projectId, query);
    return row === undefined ? undefined : toStoredEntry(row, scope);
  }

  /** Counts over time, with every bucket of the range, and the services and error messages seen most. */
  async aggregate(scope: ProjectScope, query: AggregateQuery): Promise<AggregateAnswer> {
    const readScope = this.#readScope(scope);
    const { projectId } = scope;
    const [timeline, services, errors] = await Promise.all([
      this.#clickhouse.readTenant<TimelineRow>(projectId, buildTimeline(readScope, query)),
      this.#clickhouse.readTenant<TopServiceRow>(projectId, buildTopServices(readScope, query)),
      this.#clickhouse.readTenant<TopErrorRow>(projectId, buildTopErrors(readScope, query)),
    ]);
    return {
      timeseries: fillBuckets(timeline, query),
      top_services: services.map(({ service, entries }) => ({ service, count: Number(entries) })),
      top_errors: errors.map(({ message, entries }) => ({ message, count: Number(entries) })),
    };
  }

  #readScope(scope: ProjectScope): ReadScope {
    const nowNs = BigInt(Math.trunc(this.#now())) * 1_000_000n;
    return { projectId: scope.projectId, oldestNs: nowNs - BigInt(scope.retentionDays) * DAY_NS };
  }
}

const PLAN_CONDITION = `project_id IN {projects:Array(UUID)}
  AND time >= fromUnixTimestamp64Nano({minTime:Int64}, 'UTC')
  AND time <= fromUnixTimestamp64Nano({maxTime:Int64}, 'UTC')
  AND shard = {shard:UInt8} AND seq >= {seqFrom:UInt64} AND seq < {seqTo:UInt64}`;
/** Measured: of 600,000 rows 14,000 were read for two hours of two projects; an array made by arrayMap read them all. */
const HOURS_CONDITION = `AND toStartOfHour(time) IN {hours:Array(DateTime('UTC'))}`;

function planCondition({ hours }: PlanRange): string {
  return hours === undefined ? PLAN_CONDITION : `${PLAN_CONDITION} ${HOURS_CONDITION}`;
}

function bindPlan(range: PlanRange): Record<string, unknown> {
  return {
    projects: range.projectIds,
    minTime: range.minTimeNs.toString(),
    maxTime: range.maxTimeNs.toString(),
    ...(range.hours !== undefined && { hours: range.hours }),
    shard: range.shard,
    seqFrom: range.seqFrom.toString(),
    seqTo: range.seqTo.toString(),
  };
}

function positionOf(row: EntryRow): SearchPosition {
  return { timeNs: BigInt(row.timeNs), seq: BigInt(row.seqText) };
}

function toStoredEntry(row: EntryRow, scope: ProjectScope): StoredEntry {
  const { timeNs, seq } = positionOf(row);
  const traceId = readTraceId(row);
  return {
    id: encodeEntryId(timeNs, { shard: row.shard, ...decodeSeq(seq) }),
    timeNs,
    service: row.service,
    level: row.level,
    message: row.message,
    metadataJson: row.metadata,
    ...(traceId !== undefined && { traceId }),
    ...(row.spanId !== '' && { spanId: row.spanId }),
    ...(row.sessionId !== '' && { sessionId: row.sessionId }),
    ...(scope.withProjectId === true && { projectId: scope.projectId }),
  };
}

/** The trace as it was sent. */
function readTraceId(row: EntryRow): string | undefined {
  switch (row.traceForm) {
    case 'none':
      return undefined;
    case 'uuid':
      return row.traceKey;
    case 'hex':
      return row.traceKey.replaceAll('-', '');
    case 'text':
      return row.traceText;
  }
}

function fillBuckets(rows: readonly TimelineRow[], query: AggregateQuery): AggregateAnswer['timeseries'] {
  const intervalNs = BigInt(query.intervalMs) * 1_000_000n;
  const buckets = new Map<bigint, AggregateAnswer['timeseries'][number]>();
  for (let startNs = startOfBucket(query.fromNs, query); startNs <= query.toNs; startNs += intervalNs) {
    const byLevel = { debug: 0, info: 0, warn: 0, error: 0, critical: 0 };
    buckets.set(startNs, { bucket: formatTimestampNs(startNs), total: 0, by_level: byLevel });
  }
  for (const { bucketNs, level, entries } of rows) {
    const bucket = buckets.get(BigInt(bucketNs));
    if (bucket !== undefined) {
      bucket.by_level[level] = Number(entries);
      bucket.total += Number(entries);
    }
  }
  return [...buckets.values()];
}
