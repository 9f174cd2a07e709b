#!lua flags=allow-oom
-- Writes down what will be inserted before it is tried.
-- KEYS: state. ARGV: consumer, fence, from, plan.
-- Guarantees: at most one open plan a consumer; it starts where the last commit ended; only the owner
-- with the newest fence writes it. Running it again after an unknown outcome is safe, on another server too: one that
-- was not compared with ClickHouse since it started (a promoted replica has the owner's fence) may lack the blocks
-- that the owner read, and refuses; prepare.lua replaces that owner.
-- Returns 1, or 0 when the caller no longer owns the shard or is out of step.
local name = ARGV[1]
local cursor = redis.call('HMGET', KEYS[1], name .. ':fence', name .. ':done', name .. ':plan', 'run')
if cursor[4] ~= string.match(redis.call('INFO', 'server'), 'run_id:(%x+)') then
  return 0
end
if cursor[1] ~= ARGV[2] or (cursor[2] or '1') ~= ARGV[3] or (cursor[3] and cursor[3] ~= ARGV[4]) then
  return 0
end
-- Also when it is there already: the WAIT behind this call must have a write to wait for.
redis.call('HSET', KEYS[1], name .. ':plan', ARGV[4])
return 1
