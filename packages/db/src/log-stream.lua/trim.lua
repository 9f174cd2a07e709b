#!lua flags=allow-oom
-- Drops what every consumer is past and nobody may ask to replay any more.
-- KEYS: log, state, marks. ARGV: now in ms, replay window in ms, window under pressure in ms,
--       bytes that count as pressure, bytes above which there is no window, consumers….
-- Guarantees: nothing at or above the lowest cursor is dropped, whatever the pressure, and no change of rules before
-- the alert worker has read it. Changes that it has read go after the same time as blocks, whether blocks come or not;
-- at most 10,000 in one call.
-- Returns {the consumer that is furthest behind, bytes the stream still holds}.
local floor, slowest = math.huge, ''
for i = 6, #ARGV do
  local done = tonumber(redis.call('HGET', KEYS[2], ARGV[i] .. ':done') or 1)
  if done < floor then
    floor, slowest = done, ARGV[i]
  end
end
local bytes = redis.call('HMGET', KEYS[2], 'bytesIn', 'bytesTrimmed')
local held = tonumber(bytes[1] or 0) - tonumber(bytes[2] or 0)
local window = tonumber(ARGV[2])
if held > tonumber(ARGV[5]) then
  window = -1
elseif held > tonumber(ARGV[4]) then
  window = tonumber(ARGV[3])
end
local cutoff = tonumber(ARGV[1]) - window
local trimmed, trimmedBytes
while true do
  local mark = redis.call('LINDEX', KEYS[3], 0)
  if not mark then
    break
  end
  local offset, received, total = string.match(mark, '^(%d+) (%d+) (%d+)$')
  if tonumber(offset) > floor or (window >= 0 and tonumber(received) > cutoff) then
    break
  end
  trimmed, trimmedBytes = offset, total
  redis.call('LPOP', KEYS[3])
end
local controls = redis.call('HMGET', KEYS[2], 'controlsGone', 'alert:controls')
local read = tonumber(controls[2] or 0)
local first = tonumber(controls[1] or read)
local gone, goneBytes = first, 0
while gone < read and gone - first < 10000 do
  local id = string.format('%.0f', gone + 1)
  local place, size, putAt = string.match(redis.call('HGET', KEYS[2], 'control:' .. id) or '', '^(%d+) (%d+) (%d+)$')
  if place then
    if window >= 0 and tonumber(putAt) > cutoff then
      break
    end
    redis.call('XDEL', KEYS[1], place .. '-' .. id)
    redis.call('HDEL', KEYS[2], 'control:' .. id)
    goneBytes = goneBytes + tonumber(size)
  end
  gone = gone + 1
end
if gone > first then
  redis.call('HSET', KEYS[2], 'controlsGone', string.format('%.0f', gone))
  redis.call('HINCRBY', KEYS[2], 'controlBytesGone', string.format('%.0f', goneBytes))
end

if not trimmed then
  return { slowest, string.format('%.0f', held) }
end
-- Changes of rules that lie right below the cut may not have been read by the alert worker.
redis.call('XTRIM', KEYS[1], 'MINID', string.format('%.0f-%.0f', tonumber(trimmed) - 1, read + 1))
redis.call('HSET', KEYS[2], 'bytesTrimmed', trimmedBytes)
return { slowest, string.format('%.0f', tonumber(bytes[1] or 0) - tonumber(trimmedBytes)) }
