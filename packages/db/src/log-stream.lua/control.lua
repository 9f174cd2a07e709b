-- Puts a change of rules on the shard's stream: behind every entry admitted so far, before every later one.
-- KEYS: log, state. ARGV: the change, changes that may wait for the alert worker, bytes that all changes in the stream
--       may take, bytes above which those go first that it has read, now in ms.
-- Guarantees: it takes no offset. Its stream id is the last offset given out and, as second half, its number, which
-- counts from 1 and never comes again; blocks have 0 there. Changes that were not read yet are never dropped.
-- `control:<number>` says where each lies in the stream, its bytes and when it came, for trim.lua too.
-- Returns {'put'}, {'full', 'changes' or 'bytes'} when too many or too large ones wait, or {'unprepared'} for a shard
-- without an epoch.
local state = redis.call('HMGET', KEYS[2], 'epoch', 'next', 'controls', 'alert:controls', 'controlsGone',
  'controlBytesIn', 'controlBytesGone')
if not state[1] then
  return { 'unprepared' }
end
local number = tonumber(state[3] or 0) + 1
local read = tonumber(state[4] or 0)
if number - read > tonumber(ARGV[2]) then
  return { 'full', 'changes' }
end
-- What a short one takes beside its text, where it lies in the stream included.
local size = #ARGV[1] + 200
local held = tonumber(state[6] or 0) - tonumber(state[7] or 0)

local first = tonumber(state[5] or number - 1)
local gone, goneBytes = first, 0
while gone < read and gone - first < 1000 and held - goneBytes + size > tonumber(ARGV[4]) do
  gone = gone + 1
  local id = string.format('%.0f', gone)
  local place, bytes = string.match(redis.call('HGET', KEYS[2], 'control:' .. id) or '', '^(%d+) (%d+)')
  if place then
    redis.call('XDEL', KEYS[1], place .. '-' .. id)
    redis.call('HDEL', KEYS[2], 'control:' .. id)
    goneBytes = goneBytes + tonumber(bytes)
  end
end
if gone > first or not state[5] then
  redis.call('HSET', KEYS[2], 'controlsGone', string.format('%.0f', gone))
  redis.call('HINCRBY', KEYS[2], 'controlBytesGone', string.format('%.0f', goneBytes))
end
if held - goneBytes + size > tonumber(ARGV[3]) then
  return { 'full', 'bytes' }
end

local place = string.format('%.0f', tonumber(state[2]) - 1)
local id = string.format('%.0f', number)
redis.call('XADD', KEYS[1], place .. '-' .. id, 'rules', ARGV[1])
redis.call('HSET', KEYS[2], 'controls', id, 'control:' .. id, place .. ' ' .. size .. ' ' .. ARGV[5])
redis.call('HINCRBY', KEYS[2], 'controlBytesIn', size)
return { 'put' }
