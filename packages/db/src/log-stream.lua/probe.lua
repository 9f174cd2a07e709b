#!lua flags=allow-oom
-- Notes that a block of the plan is about to be decoded, or (offset 0) that it was.
-- KEYS: state. ARGV: consumer, fence, offset.
-- Guarantees: a block whose reader dies of it is counted once more by the next reader.
-- Returns how often this block was begun without an end, or -1 when the caller no longer owns the shard.
local field = ARGV[1] .. ':probe'
local state = redis.call('HMGET', KEYS[1], ARGV[1] .. ':fence', field)
if state[1] ~= ARGV[2] then
  return -1
end
if ARGV[3] == '0' then
  redis.call('HDEL', KEYS[1], field)
  return 0
end
local offset, tries = string.match(state[2] or '', '^(%d+) (%d+)$')
local count = offset == ARGV[3] and tonumber(tries) + 1 or 1
redis.call('HSET', KEYS[1], field, ARGV[3] .. ' ' .. count)
return count
