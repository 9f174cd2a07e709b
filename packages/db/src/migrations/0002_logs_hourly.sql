-- Entries per project, hour, service and level, for charts over long ranges. Partitions are those of logs,
-- so that retention drops the same ones in both tables. The deduplication window makes a repeated insert
-- into logs count once here too.
CREATE TABLE IF NOT EXISTS logs_hourly
(
  project_id     UUID                     CODEC(ZSTD(1)),
  retention_days UInt16                   CODEC(ZSTD(1)),
  hour           DateTime('UTC')          CODEC(Delta(4), ZSTD(1)),
  service        LowCardinality(String)   CODEC(ZSTD(1)),
  level          Enum8('debug' = 1, 'info' = 2, 'warn' = 3, 'error' = 4, 'critical' = 5) CODEC(ZSTD(1)),
  entries        SimpleAggregateFunction(sum, UInt64) CODEC(ZSTD(1))
)
ENGINE = AggregatingMergeTree
PARTITION BY (retention_days, intDiv(toRelativeDayNum(hour), multiIf(retention_days <= 14, 1, retention_days <= 90, 7, 30)))
ORDER BY (project_id, hour, service, level)
SETTINGS
  non_replicated_deduplication_window = 10000,
  fsync_after_insert = 1,
  fsync_part_directory = 1;

CREATE MATERIALIZED VIEW IF NOT EXISTS logs_to_hourly TO logs_hourly AS
SELECT project_id, retention_days, toStartOfHour(time) AS hour, service, level, count() AS entries
FROM logs
GROUP BY project_id, retention_days, hour, service, level;
