-- Writes down what will be inserted before it is tried.
-- KEYS: state. ARGV: consumer, fence, from, plan.
-- Guarantees: at most one open plan a consumer; it starts where the last commit ended; only the owner
-- with the newest fence writes it.
-- Returns 1, or 0 when the caller no longer owns the shard or is out of step.
local cursor = redis.call('HMGET', KEYS[1], ARGV[1] .. ':fence', ARGV[1] .. ':done', ARGV[1] .. ':plan')
if cursor[1] ~= ARGV[2] or (cursor[2] or '1') ~= ARGV[3] or cursor[3] then
  return 0
end
redis.call('HSET', KEYS[1], ARGV[1] .. ':plan', ARGV[4])
return 1
