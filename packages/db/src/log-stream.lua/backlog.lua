-- What waits of one project, and since when.
-- KEYS: backlog, log, state. ARGV: project.
-- Returns {bytes, entries, age in ms of the oldest waiting block of the shard}.
local waiting = redis.call('HMGET', KEYS[1], ARGV[1], ARGV[1] .. '#')
if not waiting[1] then
  return { '0', '0', '0' }
end
local done = redis.call('HGET', KEYS[3], 'ingest:done') or '1'
local oldest = redis.call('XRANGE', KEYS[2], done .. '-0', '+', 'COUNT', '1')
local age = 0
local block = oldest[1] and oldest[1][2][2] or ''
-- A damaged block says nothing of its age.
if #block >= 24 then
  -- When it was received, in ns since 1970 (log-block/layout.ts).
  local received = struct.unpack('<i8', string.sub(block, 17, 24)) / 1e6
  local clock = redis.call('TIME')
  age = math.max(0, clock[1] * 1000 + clock[2] / 1000 - received)
end
return { waiting[1], waiting[2], string.format('%.0f', age) }
