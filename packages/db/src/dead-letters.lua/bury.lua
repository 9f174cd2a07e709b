#!lua flags=allow-oom
-- Keeps what cannot be stored, until its project replays or deletes it.
-- KEYS: state, order, letters, payloads. ARGV: fence, id, letter (JSON; '': only the record), payload, place in the
--       order, bytes that the shard's letters may take, name of the record, what it covers of the plan
--       ('from-to from-to …' or '').
-- Guarantees: only the worker with the newest fence buries; a letter is kept once, however often it is buried; the
-- bytes of all letters of the shard are counted exactly in `deadBytes`. It works above maxmemory too: without it
-- nothing behind the letter could be stored. What was buried of the open plan is recorded beside it until the commit
-- (at most one field a letter): a letter that was replayed or deleted meanwhile does not come back, and the next
-- owner does not store its entries. A letter above the bound is kept when it is the only one: a shard must not stand
-- still for ever.
-- Returns 'buried', 'full' or 'replaced' (another worker owns the shard now).
local state = redis.call('HMGET', KEYS[1], 'ingest:fence', 'ingest:plan', 'buried:' .. ARGV[7], 'deadBytes')
if state[1] ~= ARGV[1] then
  return 'replaced'
end
if not state[3] and ARGV[3] ~= '' and redis.call('HEXISTS', KEYS[3], ARGV[2]) == 0 then
  local size = #ARGV[3] + #ARGV[4] + 3 * #ARGV[2] + #ARGV[5]
  local held = tonumber(state[4] or 0)
  if held > 0 and held + size > tonumber(ARGV[6]) then
    return 'full'
  end
  redis.call('ZADD', KEYS[2], 0, ARGV[5])
  redis.call('HSET', KEYS[3], ARGV[2], ARGV[3])
  redis.call('HSET', KEYS[4], ARGV[2], ARGV[4])
  redis.call('HINCRBY', KEYS[1], 'deadBytes', size)
end
if state[2] then
  redis.call('HSET', KEYS[1], 'ingest:buried', 1, 'buried:' .. ARGV[7], ARGV[8])
end
-- Always a write, so that the WAIT behind this call covers the first burial too.
redis.call('HINCRBY', KEYS[1], 'deadBytes', 0)
return 'buried'
