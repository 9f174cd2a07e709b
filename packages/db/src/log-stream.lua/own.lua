#!lua flags=allow-oom
-- Takes the lease of a shard for a consumer when nobody else holds it.
-- KEYS: lease, state. ARGV: consumer, holder, time to live in ms[, fence, epoch and reached offset of the caller's
--       last ownership].
-- Guarantees: each taking raises the fence, so that whatever an earlier owner still tries is refused; it counts
-- the owners that found the same plan open. A server that was not compared with ClickHouse since it started gives
-- no lease, with two exceptions: it is known to be behind, and what it holds is to be drained; or the caller was
-- the shard's last owner and the stream still reaches as far as it ever read. Nobody else can have inserted more,
-- so this is the same comparison, and needs no ClickHouse.
-- Returns {'taken', fence, epoch, done, plan or '', tries, probe or '', draining (1 or 0)}, {'held'} or
-- {'unprepared'}.
local name = ARGV[1]
local state = redis.call('HMGET', KEYS[2], 'epoch', 'run', 'draining', 'next', name .. ':fence')
local run = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
if state[1] and state[2] ~= run and not state[3] and state[5] == ARGV[4] and state[1] == ARGV[5]
  and tonumber(state[4]) >= tonumber(ARGV[6]) then
  redis.call('HSET', KEYS[2], 'run', run)
  state[2] = run
end
if not state[1] or state[2] ~= run then
  return { 'unprepared' }
end
if redis.call('EXISTS', KEYS[1]) == 1 then
  return { 'held' }
end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
local fence = redis.call('HINCRBY', KEYS[2], name .. ':fence', 1)
local cursor = redis.call('HMGET', KEYS[2], name .. ':done', name .. ':plan', name .. ':probe')
local tries = 0
if cursor[2] then
  tries = redis.call('HINCRBY', KEYS[2], name .. ':tries', 1)
end
return { 'taken', tostring(fence), state[1], cursor[1] or '1', cursor[2] or '', tostring(tries), cursor[3] or '',
  state[3] and '1' or '0' }
