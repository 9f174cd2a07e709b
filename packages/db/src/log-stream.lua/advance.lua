#!lua flags=allow-oom
-- Moves the cursor of a consumer that has nothing to do with the entries up to the end of the stream.
-- KEYS: state. ARGV: consumer, fence.
-- Returns the new cursor, or false when the caller no longer owns the shard.
local cursor = redis.call('HMGET', KEYS[1], ARGV[1] .. ':fence', 'next')
if cursor[1] ~= ARGV[2] then
  return false
end
redis.call('HSET', KEYS[1], ARGV[1] .. ':done', cursor[2])
return cursor[2]
