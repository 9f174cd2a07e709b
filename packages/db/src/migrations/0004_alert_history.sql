-- The history of alerts. A row is written again when more is known of it, and whenever its writer cannot know whether
-- it was written: the last version of a key counts, so that all of it may be repeated. Kept 400 days; whole months go.
CREATE TABLE IF NOT EXISTS alert_firings
(
  project_id  UUID                              CODEC(ZSTD(1)),
  started_at  DateTime64(3, 'UTC')              CODEC(ZSTD(1)),
  firing_id   UUID                              CODEC(ZSTD(1)),
  rule_id     UUID                              CODEC(ZSTD(1)),
  rule_name   String                            CODEC(ZSTD(1)),
  resolved_at Nullable(DateTime64(3, 'UTC'))    CODEC(ZSTD(1)),
  entries     UInt64                            CODEC(ZSTD(1)),
  peak        UInt64                            CODEC(ZSTD(1)),
  threshold   UInt64                            CODEC(ZSTD(1)),
  time_window LowCardinality(String)            CODEC(ZSTD(1)),
  version     UInt64                            CODEC(ZSTD(1))
)
ENGINE = ReplacingMergeTree(version)
PARTITION BY toYYYYMM(started_at)
ORDER BY (project_id, started_at, firing_id)
TTL toDateTime(started_at) + INTERVAL 400 DAY
SETTINGS
  ttl_only_drop_parts = 1,
  fsync_after_insert = 1,
  fsync_part_directory = 1,
  min_rows_to_fsync_after_merge = 1,
  min_compressed_bytes_to_fsync_after_merge = 1,
  old_parts_lifetime = 600;

CREATE TABLE IF NOT EXISTS alert_deliveries
(
  project_id UUID                               CODEC(ZSTD(1)),
  started_at DateTime64(3, 'UTC')               CODEC(ZSTD(1)),
  firing_id  UUID                               CODEC(ZSTD(1)),
  kind       Enum8('fired' = 1, 'renotified' = 2, 'resolved' = 3) CODEC(ZSTD(1)),
  repeat     UInt32                             CODEC(ZSTD(1)),
  channel    Enum8('email' = 1, 'webhook' = 2)  CODEC(ZSTD(1)),
  target     String                             CODEC(ZSTD(1)),
  status     Enum8('retrying' = 1, 'not_configured' = 2, 'failed' = 3, 'sent' = 4) CODEC(ZSTD(1)),
  attempts   UInt32                             CODEC(ZSTD(1)),
  last_error Nullable(String)                   CODEC(ZSTD(1)),
  at         DateTime64(3, 'UTC')               CODEC(ZSTD(1)),
  version    UInt64                             CODEC(ZSTD(1))
)
ENGINE = ReplacingMergeTree(version)
PARTITION BY toYYYYMM(started_at)
ORDER BY (project_id, started_at, firing_id, kind, repeat, channel, target)
TTL toDateTime(started_at) + INTERVAL 400 DAY
SETTINGS
  ttl_only_drop_parts = 1,
  fsync_after_insert = 1,
  fsync_part_directory = 1,
  min_rows_to_fsync_after_merge = 1,
  min_compressed_bytes_to_fsync_after_merge = 1,
  old_parts_lifetime = 600;
