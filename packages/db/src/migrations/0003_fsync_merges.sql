-- A merged part replaces parts that were synced: it must be on disk before they are dropped.
ALTER TABLE logs MODIFY SETTING min_rows_to_fsync_after_merge = 1;
ALTER TABLE logs_hourly MODIFY SETTING min_rows_to_fsync_after_merge = 1;
