#!lua flags=allow-oom
-- Says that a project is being tailed, so that admit publishes its blocks.
-- KEYS: tailed, state. ARGV: time to live in ms, project ids….
-- Guarantees: every block admitted after this call and before the time to live ends is published, unless the stream
-- is under pressure; then `last` moves without a message, and the fifth answer is 1 until one is sent again.
-- Returns {epoch, next offset, last published offset, 1 when one of the projects was not tailed just before,
-- 1 while nothing is published}.
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local till = string.format('%.0f', now + tonumber(ARGV[1]))
local lapsed = 0
for i = 2, #ARGV do
  local before = redis.call('HGET', KEYS[1], ARGV[i])
  if not before or tonumber(before) <= now then
    lapsed = 1
  end
  redis.call('HSET', KEYS[1], ARGV[i], till)
end
redis.call('HSETNX', KEYS[1], 'last', '0')
local state = redis.call('HMGET', KEYS[2], 'epoch', 'next', 'shed')
return { state[1] or '0', state[2] or '1', redis.call('HGET', KEYS[1], 'last'), lapsed, state[3] and 1 or 0 }
