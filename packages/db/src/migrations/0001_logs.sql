-- The log entries. Columns, order and partitions: storage.md §2, each with its measured reason.
-- The projects' exact retention is applied by every query; the class in retention_days only decides which
-- partition a row lives in, so that whole partitions can be dropped.
CREATE TABLE IF NOT EXISTS logs
(
  project_id     UUID                     CODEC(ZSTD(1)),
  retention_days UInt16                   CODEC(ZSTD(1)),
  time           DateTime64(9, 'UTC')     CODEC(Delta(8), ZSTD(1)),
  seq            UInt64                   CODEC(Delta(8), ZSTD(1)),
  shard          UInt8                    CODEC(ZSTD(1)),
  received_at    DateTime64(3, 'UTC')     CODEC(Delta(8), ZSTD(1)),
  level          Enum8('debug' = 1, 'info' = 2, 'warn' = 3, 'error' = 4, 'critical' = 5) CODEC(ZSTD(1)),
  service        LowCardinality(String)   CODEC(ZSTD(1)),
  message        String                   CODEC(ZSTD(1)),
  metadata       String                   CODEC(ZSTD(1)),
  trace_key      UUID                     CODEC(ZSTD(1)),
  trace_form     Enum8('none' = 0, 'uuid' = 1, 'hex' = 2, 'text' = 3) CODEC(ZSTD(1)),
  trace_text     String                   CODEC(ZSTD(1)),
  span_id        String                   CODEC(ZSTD(1)),
  session_id     String                   CODEC(ZSTD(1)),
  INDEX i_trace trace_key TYPE bloom_filter(0.01) GRANULARITY 4,
  INDEX i_msg lowerUTF8(message) TYPE text(tokenizer = splitByNonAlpha)
)
ENGINE = MergeTree
PARTITION BY (retention_days, intDiv(toRelativeDayNum(time), multiIf(retention_days <= 14, 1, retention_days <= 90, 7, 30)))
ORDER BY (project_id, time, seq)
SETTINGS
  index_granularity = 2048,
  non_replicated_deduplication_window = 10000,
  fsync_after_insert = 1,
  fsync_part_directory = 1,
  min_free_disk_ratio_to_perform_insert = 0.02;
