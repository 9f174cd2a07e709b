#!lua flags=allow-oom
-- Takes a lease that is not a shard's.
-- KEYS: lease. ARGV: holder, time to live in ms.
-- Returns 1, or 0 when somebody else holds it.
return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) and 1 or 0
