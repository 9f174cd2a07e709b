-- Gives a shard its epoch, once. Nothing is admitted or owned before.
-- KEYS: state. ARGV: epoch.
-- Guarantees: an epoch is never changed here; the first offset of an epoch is 1.
-- Returns the epoch in force.
if redis.call('HSETNX', KEYS[1], 'epoch', ARGV[1]) == 1 then
  redis.call('HSET', KEYS[1], 'next', '1')
end
return redis.call('HGET', KEYS[1], 'epoch')
