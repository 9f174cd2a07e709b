import type { AlertHistoryAnswer } from '@logpond/schema/alert-history';
import type { OutboxItem } from './alert-windows.ts';
import type { ClickHouseStore } from './clickhouse.ts';
import { SqlBindings } from './sql-bindings.ts';

type DeliveryStatus = 'sent' | 'retrying' | 'failed' | 'not_configured';

/**
 * What is kept of a firing, or of one notification of it to one recipient. It may be written any number of times and
 * later again with more: of a firing the greatest `version` counts, of a delivery the best status and then the most
 * attempts.
 */
export type HistoryRow =
  | {
      type: 'firing';
      projectId: string;
      ruleId: string;
      ruleName: string;
      firingId: string;
      startedAtMs: number;
      resolvedAtMs: number | null;
      count: number;
      threshold: number;
      timeWindow: string;
      /** The count where it is missing. */
      peak?: number;
      version: number;
    }
  | {
      type: 'delivery';
      projectId: string;
      firingId: string;
      /** Of the firing. */
      startedAtMs: number;
      kind: OutboxItem['kind'];
      repeat: number;
      channel: 'email' | 'webhook';
      target: string;
      status: DeliveryStatus;
      attempts: number;
      lastError: string | null;
      atMs: number;
    };

export type HistoryQuery = {
  ruleId?: string | undefined;
  /** Bounds of the start, inclusive, in ms since 1970. */
  fromMs?: number | undefined;
  toMs?: number | undefined;
  /** 1 to 1,000. */
  limit: number;
  cursor?: string | undefined;
};

type FiringRow = {
  id: string;
  ruleId: string;
  ruleName: string;
  startedMs: string;
  resolvedMs: string | null;
  entries: string;
  peak: string;
  threshold: string;
  timeWindow: string;
};

type DeliveryRow = {
  firingId: string;
  kind: OutboxItem['kind'];
  repeat: number;
  channel: 'email' | 'webhook';
  target: string;
  status: DeliveryStatus;
  attempts: number;
  lastError: string | null;
  atMs: string;
};

type HistoryEntry = AlertHistoryAnswer['history'][number];

const DELIVERIES_PER_FIRING_MAX = 50;
const ERROR_LENGTH_MAX = 1_000;
/** A delivery that was sent stays so, whatever a slower process writes later of an earlier attempt. */
const STATUS_RANK: Record<DeliveryStatus, number> = { retrying: 0, not_configured: 1, failed: 2, sent: 3 };
const ATTEMPTS_MAX = 1_000_000;

const INSERT = {
  firing: `INSERT INTO alert_firings (project_id, started_at, firing_id, rule_id, rule_name, resolved_at, entries, peak,
    threshold, time_window, version) FORMAT JSONEachRow`,
  delivery: `INSERT INTO alert_deliveries (project_id, started_at, firing_id, kind, repeat, channel, target, status,
    attempts, last_error, at, version) FORMAT JSONEachRow`,
} as const;

/** The history of alerts in ClickHouse: when rules fired, and what became of the notifications. Throws StoreError. */
export class AlertHistory {
  readonly #clickhouse: ClickHouseStore;

  constructor(clickhouse: ClickHouseStore) {
    this.#clickhouse = clickhouse;
  }

  /** Writes rows; writing them again changes nothing. After a failure some may be written: write all again. */
  async insert(rows: readonly HistoryRow[]): Promise<void> {
    for (const type of ['firing', 'delivery'] as const) {
      const lines = rows.filter((row) => row.type === type).map((row) => JSON.stringify(encodeRow(row)));
      if (lines.length === 0) continue;
      await this.#clickhouse.insert(INSERT[type], [Buffer.from(`${lines.join('\n')}\n`)], {
        async_insert: 0,
        // A row is known by its key and version; a block of rows is nothing to be compared.
        insert_deduplicate: 0,
      });
    }
  }

  /** One page, newest first. Firings of one moment are in an order of their own, so a cursor never skips one. */
  async list(projectId: string, query: HistoryQuery): Promise<AlertHistoryAnswer> {
    const rows = await this.#readFirings(projectId, query);
    const page = rows.slice(0, query.limit);
    const deliveries = await this.#readDeliveries(projectId, page);
    const last = rows.length > query.limit ? page.at(-1) : undefined;
    return {
      history: page.map((row) => toEntry(row, deliveries.get(row.id) ?? [])),
      nextCursor: last === undefined ? null : encodeCursor(last),
    };
  }

  async #readFirings(projectId: string, query: HistoryQuery): Promise<FiringRow[]> {
    const bindings = new SqlBindings();
    const time = (ms: number): string =>
      `fromUnixTimestamp64Milli(${bindings.bind('Int64', String(ms))}, 'UTC')`;
    const conditions = [`project_id = ${bindings.bind('UUID', projectId)}`];
    if (query.fromMs !== undefined) conditions.push(`started_at >= ${time(query.fromMs)}`);
    if (query.toMs !== undefined) conditions.push(`started_at <= ${time(query.toMs)}`);
    if (query.ruleId !== undefined) conditions.push(`rule_id = ${bindings.bind('UUID', query.ruleId)}`);
    if (query.cursor !== undefined) {
      const { startedMs, id } = decodeCursor(query.cursor);
      const start = time(startedMs);
      // The first bound is contained in the second, but it is the one that the primary key can prune by.
      conditions.push(`started_at <= ${start}`);
      conditions.push(`(started_at, firing_id) < (${start}, ${bindings.bind('UUID', id)})`);
    }
    const limit = query.limit + 1;
    const sql = `SELECT toString(firing_id) AS id, toString(rule_id) AS ruleId, rule_name AS ruleName,
        toUnixTimestamp64Milli(started_at) AS startedMs, toUnixTimestamp64Milli(resolved_at) AS resolvedMs,
        entries, peak, threshold, time_window AS timeWindow
      FROM alert_firings FINAL WHERE ${conditions.join(' AND ')}
      ORDER BY started_at DESC, firing_id DESC LIMIT ${bindings.bind('UInt32', limit)}`;
    return this.#clickhouse.readTenant<FiringRow>(projectId, {
      sql,
      params: bindings.params,
      resultRowsMax: limit,
    });
  }

  /** Of each firing the newest 50, oldest first. */
  async #readDeliveries(
    projectId: string,
    firings: readonly FiringRow[],
  ): Promise<Map<string, DeliveryRow[]>> {
    const byFiring = new Map<string, DeliveryRow[]>();
    const [newest, oldest] = [firings[0], firings.at(-1)];
    if (newest === undefined || oldest === undefined) return byFiring;
    const bindings = new SqlBindings();
    const ids = bindings.bind(
      'Array(UUID)',
      firings.map(({ id }) => id),
    );
    const sql = `SELECT toString(firing_id) AS firingId, kind, repeat, channel, target, status, attempts,
        last_error AS lastError, toUnixTimestamp64Milli(at) AS atMs
      FROM alert_deliveries FINAL WHERE project_id = ${bindings.bind('UUID', projectId)}
        AND started_at >= fromUnixTimestamp64Milli(${bindings.bind('Int64', oldest.startedMs)}, 'UTC')
        AND started_at <= fromUnixTimestamp64Milli(${bindings.bind('Int64', newest.startedMs)}, 'UTC')
        AND firing_id IN ${ids}
      ORDER BY at DESC, kind DESC, repeat DESC, channel DESC, target DESC LIMIT ${DELIVERIES_PER_FIRING_MAX} BY firing_id
     `;
    const resultRowsMax = firings.length * DELIVERIES_PER_FIRING_MAX;
    const query = { sql, params: bindings.params, resultRowsMax };
    for (const row of (await this.#clickhouse.readTenant<DeliveryRow>(projectId, query)).toReversed()) {
      const known = byFiring.get(row.firingId) ?? [];
      byFiring.set(row.firingId, known);
      known.push(row);
    }
    return byFiring;
  }
}

function encodeRow(row: HistoryRow): Record<string, unknown> {
  const key = {
    project_id: row.projectId,
    started_at: renderTime(row.startedAtMs),
    firing_id: row.firingId,
  };
  if (row.type === 'firing') {
    return {
      ...key,
      rule_id: row.ruleId,
      rule_name: row.ruleName,
      resolved_at: row.resolvedAtMs === null ? null : renderTime(row.resolvedAtMs),
      entries: row.count,
      peak: row.peak ?? row.count,
      threshold: row.threshold,
      time_window: row.timeWindow,
      version: row.version,
    };
  }
  return {
    ...key,
    kind: row.kind,
    repeat: row.repeat,
    channel: row.channel,
    target: row.target,
    status: row.status,
    attempts: row.attempts,
    last_error: row.lastError?.slice(0, ERROR_LENGTH_MAX) ?? null,
    at: renderTime(row.atMs),
    version: STATUS_RANK[row.status] * ATTEMPTS_MAX + Math.min(row.attempts, ATTEMPTS_MAX - 1),
  };
}

/** As ClickHouse reads a DateTime64(3) of UTC whatever its settings are. */
function renderTime(ms: number): string {
  return new Date(ms).toISOString().replace('T', ' ').slice(0, -1);
}

function toEntry(row: FiringRow, deliveries: readonly DeliveryRow[]): HistoryEntry {
  return {
    id: row.id,
    ruleId: row.ruleId,
    ruleName: row.ruleName,
    startedAt: new Date(Number(row.startedMs)).toISOString(),
    resolvedAt: row.resolvedMs === null ? null : new Date(Number(row.resolvedMs)).toISOString(),
    count: Number(row.entries),
    peak: Number(row.peak),
    threshold: Number(row.threshold),
    timeWindow: row.timeWindow,
    deliveries: deliveries.map(({ firingId: _firingId, atMs, ...rest }) => ({
      ...rest,
      at: new Date(Number(atMs)).toISOString(),
    })),
  };
}

/** The start in 13 digits, a point, the firing's id: alertHistoryQueryParams checks the form. */
function encodeCursor({ startedMs, id }: FiringRow): string {
  return `${startedMs.padStart(13, '0')}.${id}`;
}

function decodeCursor(cursor: string): { startedMs: number; id: string } {
  const [startedMs, id = ''] = cursor.split('.');
  return { startedMs: Number(startedMs), id };
}
