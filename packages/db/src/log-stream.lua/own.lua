-- Takes the lease of a shard for a consumer when nobody else holds it.
-- KEYS: lease, state. ARGV: consumer, holder, time to live in ms.
-- Guarantees: each taking raises the fence, so that whatever an earlier owner still tries is refused.
-- Returns {'taken', fence, epoch, done, plan or ''}, {'held'} or {'unprepared'}.
local epoch = redis.call('HGET', KEYS[2], 'epoch')
if not epoch then
  return { 'unprepared' }
end
if redis.call('EXISTS', KEYS[1]) == 1 then
  return { 'held' }
end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
local fence = redis.call('HINCRBY', KEYS[2], ARGV[1] .. ':fence', 1)
local cursor = redis.call('HMGET', KEYS[2], ARGV[1] .. ':done', ARGV[1] .. ':plan')
return { 'taken', tostring(fence), epoch, cursor[1] or '1', cursor[2] or '' }
