import type { ClickHouseStore } from './clickhouse.ts';

/** Whole hours of some projects: `hours` are their starts (UTC, seconds since 1970), at most 1,000. */
export type RollUpScope = { projectIds: readonly string[]; hours: readonly number[] };

/** One group of the roll-up that does not say what the entries do. */
export type RollUpDifference = {
  projectId: string;
  retentionDays: number;
  hour: number;
  service: string;
  level: string;
  /** Rows of `logs`. */
  stored: number;
  /** What `logs_hourly` says. */
  counted: number;
};

/** Differences of one comparison; the next comparison finds the rest. */
const DIFFERENCES_MAX = 10_000;

const COMPARE_SQL = `SELECT toString(project_id) AS projectId, retention_days AS retentionDays,
    toUnixTimestamp(hour) AS hourStart, service, level, sum(rows) AS stored, sum(entries) AS counted
  FROM (
    SELECT project_id, retention_days, toStartOfHour(time) AS hour, service, level, count() AS rows, 0 AS entries
    FROM logs
    WHERE project_id IN {projects:Array(UUID)} AND toStartOfHour(time) IN {hours:Array(DateTime('UTC'))}
    GROUP BY project_id, retention_days, hour, service, level
    UNION ALL
    SELECT project_id, retention_days, hour, service, level, 0 AS rows, sum(entries) AS entries
    FROM logs_hourly
    WHERE project_id IN {projects:Array(UUID)} AND hour IN {hours:Array(DateTime('UTC'))}
    GROUP BY project_id, retention_days, hour, service, level
  )
  GROUP BY project_id, retention_days, hour, service, level
  HAVING stored != counted
  LIMIT ${DIFFERENCES_MAX}`;

const INSERT_SQL =
  'INSERT INTO logs_hourly (project_id, retention_days, hour, service, level, entries) FORMAT JSONEachRow';

/**
 * Where `logs_hourly` and `logs` disagree. Both are read by one query, but an insert adds to the two one after the
 * other: the caller sees to it that nothing is being inserted for these projects.
 *
 * @throws {StoreError} `unavailable`.
 */
export async function compareRollUp(
  clickhouse: ClickHouseStore,
  { projectIds, hours }: RollUpScope,
): Promise<RollUpDifference[]> {
  const rows = await clickhouse.readInternal<
    Omit<RollUpDifference, 'hour' | 'stored' | 'counted'> &
      Record<'stored' | 'counted', string> & {
        hourStart: number;
      }
  >(COMPARE_SQL, { projects: projectIds, hours });
  return rows.map(({ projectId, retentionDays, hourStart, service, level, stored, counted }) => ({
    projectId,
    retentionDays,
    hour: hourStart,
    service,
    level,
    stored: Number(stored),
    counted: Number(counted),
  }));
}

/**
 * Adds what the roll-up lacks of the differences given; a surplus stays, as sums only grow.
 *
 * @param token of these differences only: with one that was used before nothing is added.
 * @throws {StoreError} `unavailable`: the outcome is unknown; compare again.
 */
export async function addToRollUp(
  clickhouse: ClickHouseStore,
  differences: readonly RollUpDifference[],
  token: string,
): Promise<void> {
  const lines = differences
    .filter(({ stored, counted }) => stored > counted)
    .map(({ projectId, retentionDays, hour, service, level, stored, counted }) =>
      JSON.stringify({
        project_id: projectId,
        retention_days: retentionDays,
        hour,
        service,
        level,
        entries: stored - counted,
      }),
    );
  if (lines.length === 0) return;
  await clickhouse.insert(INSERT_SQL, [Buffer.from(`${lines.join('\n')}\n`)], {
    async_insert: 0,
    insert_deduplicate: 1,
    insert_deduplication_token: token,
    max_partitions_per_insert_block: '1000',
  });
}
