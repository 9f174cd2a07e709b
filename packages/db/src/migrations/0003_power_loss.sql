-- A merged part takes the place of parts that were synced when they were inserted. The engine does not sync all of
-- it (never the text index, whatever these settings say), so its sources are kept until the system has surely
-- written it back; a merged part that is broken after a power failure is then made again from them.
ALTER TABLE logs MODIFY SETTING
  min_rows_to_fsync_after_merge = 1, min_compressed_bytes_to_fsync_after_merge = 1, old_parts_lifetime = 600;
ALTER TABLE logs_hourly MODIFY SETTING
  min_rows_to_fsync_after_merge = 1, min_compressed_bytes_to_fsync_after_merge = 1, old_parts_lifetime = 600;
