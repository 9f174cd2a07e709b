#!lua flags=allow-oom
-- Moves a consumer past its plan. Running it again after an unknown outcome is safe.
-- KEYS: state, marks, backlog, audits.
-- ARGV: consumer, fence, plan, to, bytes of the plan in the stream, received-at in ms, now in ms, audit record or
--       '', then of each project its id, bytes and entries in the plan.
-- Guarantees: `done` only moves by the plan that is open, for the owner with the newest fence; what admit added to
-- the backlog is taken away once.
-- What a block added whose header was damaged later is not known any more: it stays in the backlog until the shard is
-- drained, when all of it goes. More than 10,000 waiting audits: the oldest goes, and is counted.
-- The marks remember when a part of the stream was received, for trimming: at most one a second.
-- Returns 1, or 0 when the caller no longer owns the shard.
local name = ARGV[1]
local cursor = redis.call('HMGET', KEYS[1], name .. ':fence', name .. ':done', name .. ':plan', 'next')
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
redis.call('HDEL', KEYS[1], name .. ':plan', name .. ':tries')
if redis.call('HDEL', KEYS[1], name .. ':buried') == 1 then
  for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
    if string.sub(field, 1, 7) == 'buried:' then
      redis.call('HDEL', KEYS[1], field)
    end
  end
end
local bytes = redis.call('HINCRBY', KEYS[1], name .. ':bytes', ARGV[5])
local last = redis.call('LINDEX', KEYS[2], -1)
local lastReceived = last and tonumber(string.match(last, '^%d+ (%d+)'))
if lastReceived and math.floor(lastReceived / 1000) == math.floor(tonumber(ARGV[6]) / 1000) then
  redis.call('RPOP', KEYS[2])
end
redis.call('RPUSH', KEYS[2], ARGV[4] .. ' ' .. ARGV[6] .. ' ' .. string.format('%.0f', bytes))
if ARGV[8] ~= '' then
  if redis.call('RPUSH', KEYS[4], ARGV[7] .. ' ' .. ARGV[8]) > 10000 then
    redis.call('LTRIM', KEYS[4], -10000, -1)
    redis.call('HINCRBY', KEYS[1], name .. ':unaudited', 1)
  end
end

for i = 9, #ARGV, 3 do
  if redis.call('HINCRBY', KEYS[3], ARGV[i], -ARGV[i + 1]) <= 0 then
    redis.call('HDEL', KEYS[3], ARGV[i], ARGV[i] .. '#')
  else
    redis.call('HINCRBY', KEYS[3], ARGV[i] .. '#', -ARGV[i + 2])
  end
end
if cursor[4] == ARGV[4] then
  redis.call('DEL', KEYS[3])
end

-- The drain rate: bytes and time of about the last ten seconds of commits, older ones fading.
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local drain = redis.call('HMGET', KEYS[1], 'drainBytes', 'drainMs', 'drainedAt')
local ms = tonumber(drain[2] or 0) + math.max(0, now - tonumber(drain[3] or now))
local drained = tonumber(drain[1] or 0) + tonumber(ARGV[5])
local keep = math.min(1, 10000 / math.max(1, ms))
redis.call('HSET', KEYS[1], 'drainBytes', string.format('%.0f', drained * keep),
  'drainMs', string.format('%.0f', ms * keep), 'drainedAt', string.format('%.0f', now))
return 1
