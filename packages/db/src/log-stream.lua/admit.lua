-- Puts one block on the shard's stream and numbers its entries.
-- KEYS: log, state, tailed, backlog[, idempotency].
-- ARGV: rows, block, digest, bytes of the shard's budget, tail channel, number of projects,
--       then of each project its id, its bytes of the block and its entries
--       [, body hash, receipt, time to live in ms].
-- Guarantees: nothing is admitted by a server that was not compared with ClickHouse since it started; offsets are
-- dense (the stream id of a block is the offset of its first entry); the backlog is exact; a body is stored once
-- under its idempotency key; blocks of tailed projects are published in stream order, each naming the one
-- published before.
-- Returns {'stored', first offset, pressed (1 or 0), then id and seconds of each project above its fair share},
-- {'replayed', receipt}, {'mismatch'}, {'full', seconds} or {'unprepared'}.
local rows, block, digest, budget = tonumber(ARGV[1]), ARGV[2], ARGV[3], tonumber(ARGV[4])
local projects = tonumber(ARGV[6])
local after = 6 + 3 * projects

local state = redis.call('HMGET', KEYS[2], 'epoch', 'next', 'bytesIn', 'bytesTrimmed', 'run', 'draining', 'shed')
local run = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
if not state[1] or state[5] ~= run or state[6] then
  return { 'unprepared' }
end
if KEYS[5] then
  local known = redis.call('HMGET', KEYS[5], 'body', 'receipt')
  if known[1] then
    if known[1] ~= ARGV[after + 1] then
      return { 'mismatch' }
    end
    -- A write, so that the WAIT behind this call covers the first one too.
    redis.call('HINCRBY', KEYS[5], 'replays', 1)
    return { 'replayed', known[2] }
  end
end

local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

-- Bytes a second that were committed lately. While nothing is committed the last time span grows and it falls.
local function secondsToDrain(bytes)
  local drain = redis.call('HMGET', KEYS[2], 'drainBytes', 'drainMs', 'drainedAt')
  local ms = tonumber(drain[2] or 0) + math.max(0, now - tonumber(drain[3] or now))
  local rate = tonumber(drain[1] or 0) / math.max(1, ms) * 1000
  if rate * 300 <= bytes then
    return 300
  end
  return math.max(1, math.ceil(bytes / rate))
end

local size = #block + #digest
local held = tonumber(state[3] or 0) - tonumber(state[4] or 0) + size
if held > budget * 0.8 then
  return { 'full', secondsToDrain(held - budget * 0.6) }
end

-- Before the first write: an error after it would be told for entries that are stored.
local ids = {}
for i = 1, projects do
  ids[i] = ARGV[4 + 3 * i]
end
local untils = redis.call('HMGET', KEYS[3], unpack(ids))
local first = state[2]
redis.call('XADD', KEYS[1], first .. '-0', 'b', block, 'd', digest)
redis.call('HINCRBY', KEYS[2], 'next', rows)
redis.call('HINCRBY', KEYS[2], 'bytesIn', size)
local waiting = {}
for i = 1, projects do
  waiting[i] = redis.call('HINCRBY', KEYS[4], ids[i], ARGV[5 + 3 * i])
  redis.call('HINCRBY', KEYS[4], ids[i] .. '#', ARGV[6 + 3 * i])
end
if KEYS[5] then
  redis.call('HSET', KEYS[5], 'body', ARGV[after + 1], 'receipt', ARGV[after + 2])
  redis.call('PEXPIRE', KEYS[5], ARGV[after + 3])
end

local isPressed = held > budget * 0.55
for _, till in ipairs(untils) do
  if till and tonumber(till) > now then
    local before = redis.call('HGET', KEYS[3], 'last') or '0'
    redis.call('HSET', KEYS[3], 'last', first)
    if isPressed then
      -- Readers are told that there is a hole instead of being sent what fills the server's memory.
      redis.call('HSET', KEYS[2], 'shed', '1')
    else
      if state[7] then
        redis.call('HDEL', KEYS[2], 'shed')
      end
      redis.call('SPUBLISH', ARGV[5], before .. ' ' .. first .. ' ' .. state[1] .. '\n' .. block)
    end
    break
  end
end

local answer = { 'stored', first, isPressed and 1 or 0 }
if held > budget * 0.6 then
  local fair = budget * 0.6 / math.max(1, redis.call('HLEN', KEYS[4]) / 2)
  for i = 1, projects do
    if waiting[i] > fair then
      answer[#answer + 1] = ids[i]
      answer[#answer + 1] = secondsToDrain(waiting[i])
    end
  end
end
return answer
