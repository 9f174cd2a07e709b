-- Fixes what a mail for several notifications holds, when its time has come.
-- KEYS: group (the items of a batch are at <group>:<batch>).
-- ARGV: batch, job that sends it, now (ms), least time between two mails (ms), how long a mail under way holds the
--       group (ms), how long a batch that waits is kept (ms), pause before another mail under way is looked at again (ms).
-- Guarantees: once items were returned the batch never gets another, so each repeat of the mail holds the same.
-- Returns {'wait', time (ms) at which to ask again} or {'send', item…}.
local now, interval, hold, kept = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local state = redis.call('HMGET', KEYS[1], 'busy', 'busyUntil', 'nextAt', 'batch')
if state[4] == ARGV[1] then
  local busyUntil = math.min(tonumber(state[2] or 0), now + hold)
  local nextAt = math.min(tonumber(state[3] or 0), now + interval)
  if state[1] and state[1] ~= ARGV[2] and busyUntil > now then
    return { 'wait', math.max(nextAt, math.min(busyUntil, now + tonumber(ARGV[7]))) }
  end
  if nextAt > now then
    return { 'wait', nextAt }
  end
  redis.call('HDEL', KEYS[1], 'batch')
end
local items = KEYS[1] .. ':' .. ARGV[1]
local answer = redis.call('HVALS', items)
if #answer > 0 then
  redis.call('HSET', KEYS[1], 'busy', ARGV[2], 'busyUntil', now + hold, 'nextAt', now + interval)
  redis.call('PEXPIRE', KEYS[1], kept)
  redis.call('PEXPIRE', items, kept)
end
table.insert(answer, 1, 'send')
return answer
