#!lua flags=allow-oom
-- Counts the living workers of a consumer, this one included (or left out when it stops).
-- KEYS: workers (sorted set: worker -> last seen, by this server's clock). ARGV: worker, time to live in ms, stop or stay.
-- Returns the number of living workers.
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
if ARGV[3] == 'stop' then
  redis.call('ZREM', KEYS[1], ARGV[1])
else
  redis.call('ZADD', KEYS[1], now, ARGV[1])
end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - tonumber(ARGV[2]))
-- A clock that jumped back must not keep the dead alive.
redis.call('ZREMRANGEBYSCORE', KEYS[1], '(' .. now, '+inf')
return redis.call('ZCARD', KEYS[1])
