#!lua flags=allow-oom
-- Keeps what cannot be stored, until its project replays or deletes it.
-- KEYS: state, order, letters, payloads. ARGV: fence, id, letter (JSON), payload, place in the order,
--       bytes that the shard's letters may take.
-- Guarantees: only the worker with the newest fence buries; a letter is kept once, however often it is buried; the
-- bytes of all letters of the shard are counted exactly in `deadBytes`. It works above maxmemory too: without it
-- nothing behind the letter could be stored.
-- Returns 'buried', 'full' or 'replaced' (another worker owns the shard now).
if redis.call('HGET', KEYS[1], 'ingest:fence') ~= ARGV[1] then
  return 'replaced'
end
if redis.call('HEXISTS', KEYS[3], ARGV[2]) == 1 then
  -- A write, so that the WAIT behind this call covers the first burial too.
  redis.call('HINCRBY', KEYS[1], 'deadBytes', 0)
  return 'buried'
end
local size = #ARGV[3] + #ARGV[4] + 3 * #ARGV[2] + #ARGV[5]
if tonumber(redis.call('HGET', KEYS[1], 'deadBytes') or 0) + size > tonumber(ARGV[6]) then
  return 'full'
end
redis.call('ZADD', KEYS[2], 0, ARGV[5])
redis.call('HSET', KEYS[3], ARGV[2], ARGV[3])
redis.call('HSET', KEYS[4], ARGV[2], ARGV[4])
redis.call('HINCRBY', KEYS[1], 'deadBytes', size)
return 'buried'
