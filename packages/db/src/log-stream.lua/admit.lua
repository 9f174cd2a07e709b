-- Puts one block on the shard's stream and numbers its entries.
-- KEYS: log, state, tailed[, idempotency].
-- ARGV: rows, block, digest, bytes the stream may hold, tail channel, number of projects, project ids…
--       [, body hash, receipt, time to live in ms].
-- Guarantees: offsets are dense (the stream id of a block is the offset of its first entry); a body is
-- stored once under its idempotency key; blocks of tailed projects are published in stream order, each
-- naming the one published before.
-- Returns {'stored', first offset}, {'replayed', receipt}, {'mismatch'}, {'full'} or {'unprepared'}.
local rows, block, digest, limit = tonumber(ARGV[1]), ARGV[2], ARGV[3], tonumber(ARGV[4])
local projects = tonumber(ARGV[6])
local after = 6 + projects

local state = redis.call('HMGET', KEYS[2], 'epoch', 'next', 'bytesIn', 'bytesTrimmed')
if not state[1] then
  return { 'unprepared' }
end
if KEYS[4] then
  local known = redis.call('HMGET', KEYS[4], 'body', 'receipt')
  if known[1] then
    if known[1] == ARGV[after + 1] then
      return { 'replayed', known[2] }
    end
    return { 'mismatch' }
  end
end

local size = #block + #digest
local held = tonumber(state[3] or 0) - tonumber(state[4] or 0)
if held + size > limit then
  return { 'full' }
end

-- Before the first write: an error after it would be told for entries that are stored.
local untils = redis.call('HMGET', KEYS[3], unpack(ARGV, 7, after))
local first = state[2]
redis.call('XADD', KEYS[1], first .. '-0', 'b', block, 'd', digest)
redis.call('HINCRBY', KEYS[2], 'next', rows)
redis.call('HINCRBY', KEYS[2], 'bytesIn', size)
if KEYS[4] then
  redis.call('HSET', KEYS[4], 'body', ARGV[after + 1], 'receipt', ARGV[after + 2])
  redis.call('PEXPIRE', KEYS[4], ARGV[after + 3])
end

local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
for _, till in ipairs(untils) do
  if till and tonumber(till) > now then
    local before = redis.call('HGET', KEYS[3], 'last') or '0'
    redis.call('HSET', KEYS[3], 'last', first)
    redis.call('PUBLISH', ARGV[5], before .. ' ' .. first .. ' ' .. state[1] .. '\n' .. block)
    break
  end
end
return { 'stored', first }
