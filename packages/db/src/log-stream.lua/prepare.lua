#!lua flags=allow-oom
-- Compares a shard with what ClickHouse holds of it, and lets it be used by the server that runs now.
-- KEYS: state. ARGV: greatest epoch in ClickHouse, greatest offset of that epoch (both 0: none), the run of the
--       server when ClickHouse was asked.
-- Guarantees: no identity (epoch, offset) is given out twice. A shard that is new gets the next epoch. One that is
-- behind ClickHouse (restored from a copy, or rolled back by a failover) admits nothing until the ingest worker
-- has stored what it still holds; then it goes on under the next epoch, at the same offset. Whoever owns the shard
-- since before this server started, or under the old epoch, is replaced: what it read may not be in this stream.
-- Returns {'ready' | 'begun' | 'draining' | 'renewed', epoch}, or {'restarted'} when another server runs by now.
local run = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
if run ~= ARGV[3] then
  return { 'restarted' }
end
local state = redis.call('HMGET', KEYS[1], 'epoch', 'next', 'draining', 'ingest:done', 'ingest:plan', 'run')
local storedEpoch, storedOffset = tonumber(ARGV[1]), tonumber(ARGV[2])
if not state[1] then
  local epoch = tostring(storedEpoch + 1)
  redis.call('HSET', KEYS[1], 'epoch', epoch, 'next', '1', 'epochFrom', '1', 'run', run)
  return { 'begun', epoch }
end
local function replaceOwners(reason)
  for _, name in ipairs({ 'ingest', 'alert' }) do
    local number = tonumber(string.match(redis.call('HGET', KEYS[1], name .. ':fence') or '', '^%d+')) or 0
    redis.call('HSET', KEYS[1], name .. ':fence', string.format('%.0f', number + 1) .. ':' .. reason)
  end
end
if state[6] ~= run then
  replaceOwners('run-' .. run)
end
local epoch, following = tonumber(state[1]), tonumber(state[2])
local isBehind = storedEpoch > epoch or (storedEpoch == epoch and storedOffset >= following)
if not state[3] and not isBehind then
  redis.call('HSET', KEYS[1], 'run', run)
  return { 'ready', state[1] }
end
redis.call('HSET', KEYS[1], 'run', run, 'draining', '1')
if (state[4] or '1') ~= state[2] or state[5] then
  return { 'draining', state[1] }
end
local renewed = tostring(math.max(storedEpoch, epoch) + 1)
redis.call('HSET', KEYS[1], 'epoch', renewed, 'epochFrom', state[2])
redis.call('HDEL', KEYS[1], 'draining')
replaceOwners('epoch-' .. renewed)
return { 'renewed', renewed }
