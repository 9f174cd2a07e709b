-- Moves a consumer past its plan. Running it again after an unknown outcome is safe.
-- KEYS: state, marks. ARGV: consumer, fence, plan, to, bytes of the plan in the stream, received-at in ms.
-- Guarantees: `done` only moves by the plan that is open, for the owner with the newest fence.
-- The marks remember when a part of the stream was received, for trimming: at most one a second.
-- Returns 1, or 0 when the caller no longer owns the shard.
local name = ARGV[1]
local cursor = redis.call('HMGET', KEYS[1], name .. ':fence', name .. ':done', name .. ':plan')
if cursor[1] ~= ARGV[2] then
  return 0
end
if cursor[2] == ARGV[4] and not cursor[3] then
  return 1
end
if cursor[3] ~= ARGV[3] then
  return 0
end
redis.call('HSET', KEYS[1], name .. ':done', ARGV[4])
redis.call('HDEL', KEYS[1], name .. ':plan')
local bytes = redis.call('HINCRBY', KEYS[1], name .. ':bytes', ARGV[5])
local last = redis.call('LINDEX', KEYS[2], -1)
local lastReceived = last and tonumber(string.match(last, '^%d+ (%d+)'))
if lastReceived and math.floor(lastReceived / 1000) == math.floor(tonumber(ARGV[6]) / 1000) then
  redis.call('RPOP', KEYS[2])
end
redis.call('RPUSH', KEYS[2], ARGV[4] .. ' ' .. ARGV[6] .. ' ' .. string.format('%.0f', bytes))
return 1
