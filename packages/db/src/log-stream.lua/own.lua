#!lua flags=allow-oom
-- Takes the lease of a shard for a consumer when nobody else holds it.
-- KEYS: lease, state. ARGV: consumer, holder, time to live in ms.
-- Guarantees: each taking gives a fence that never was before (a number and the holder: numbers alone come again
-- after a restore), so that whatever an earlier owner still tries is refused; it counts the owners that found the
-- same plan open. A server that was not compared with ClickHouse since it started gives no lease, unless it is known
-- to be behind: then what it holds is drained first.
-- Returns {'taken', fence, epoch, done, plan or '', tries, draining (1 or 0), ranges of the plan that lie in
-- dead letters ('from-to from-to …')}, {'held'} or {'unprepared'}.
local name = ARGV[1]
local state = redis.call('HMGET', KEYS[2], 'epoch', 'run', 'draining', name .. ':fence')
local run = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
if not state[1] or state[2] ~= run then
  return { 'unprepared' }
end
if redis.call('EXISTS', KEYS[1]) == 1 then
  return { 'held' }
end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
local number = tonumber(string.match(state[4] or '', '^%d+')) or 0
local fence = string.format('%.0f', number + 1) .. ':' .. ARGV[2]
redis.call('HSET', KEYS[2], name .. ':fence', fence)
local cursor = redis.call('HMGET', KEYS[2], name .. ':done', name .. ':plan', name .. ':buried')
local tries = 0
local buried = {}
if cursor[2] then
  tries = redis.call('HINCRBY', KEYS[2], name .. ':tries', 1)
  -- The sign that there are records (bury.lua).
  local fields = cursor[3] and redis.call('HGETALL', KEYS[2]) or {}
  for i = 1, #fields, 2 do
    if string.sub(fields[i], 1, 7) == 'buried:' and fields[i + 1] ~= '' then
      buried[#buried + 1] = fields[i + 1]
    end
  end
end
return { 'taken', fence, state[1], cursor[1] or '1', cursor[2] or '', tostring(tries),
  state[3] and '1' or '0', table.concat(buried, ' ') }
