#!lua flags=allow-oom
-- Removes a letter, or puts what is left of it in its place.
-- KEYS: state, order, letters, payloads. ARGV: id, place in the order, the letter as it was read
--       [, the letter as it becomes, its payload].
-- Guarantees: a letter that changed since it was read stays as it is; `deadBytes` is exact.
-- Returns 1, or 0 when it has changed or is gone.
if redis.call('HGET', KEYS[3], ARGV[1]) ~= ARGV[3] then
  return 0
end
local before = #ARGV[3] + redis.call('HSTRLEN', KEYS[4], ARGV[1])
if ARGV[4] then
  redis.call('HSET', KEYS[3], ARGV[1], ARGV[4])
  redis.call('HSET', KEYS[4], ARGV[1], ARGV[5])
  redis.call('HINCRBY', KEYS[1], 'deadBytes', #ARGV[4] + #ARGV[5] - before)
else
  redis.call('HDEL', KEYS[3], ARGV[1])
  redis.call('HDEL', KEYS[4], ARGV[1])
  redis.call('ZREM', KEYS[2], ARGV[2])
  redis.call('HINCRBY', KEYS[1], 'deadBytes', -(before + 3 * #ARGV[1] + #ARGV[2]))
end
return 1
