-- Decides whether a notification is a mail of its own now or waits for the next mail of its group.
-- KEYS: group, decision of this job (the items of a batch are at <group>:<batch>).
-- ARGV: job, item, now (ms), least time between two mails (ms), how long a mail under way holds the group (ms), how
--       long a batch that waits is kept (ms), how long a decision is kept (ms).
-- Guarantees: the decision of a job does not change while it is kept, so one that is carried out again does the same. A group has one
-- mail under way, and another not before `interval` after it; what comes meanwhile is in exactly one batch.
-- Returns {'send'}, or {'join', batch, time (ms) at which the batch is due}.
local now, interval, hold, kept = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local decided = tonumber(ARGV[7])
local state = redis.call('HMGET', KEYS[1], 'busy', 'busyUntil', 'nextAt', 'batch', 'last')
-- Bounded from now on: a clock that was set back must not hold mails up.
local busyUntil = math.min(tonumber(state[2] or 0), now + hold)
local nextAt = math.min(tonumber(state[3] or 0), now + interval)
local decision = redis.call('GET', KEYS[2])
local batch = tonumber(state[4] or 0)
local isBusy = state[1] and state[1] ~= ARGV[1] and busyUntil > now
if decision == 'send' or (not decision and not isBusy and now >= nextAt and batch == 0) then
  redis.call('HSET', KEYS[1], 'busy', ARGV[1], 'busyUntil', now + hold, 'nextAt', now + interval)
  redis.call('PEXPIRE', KEYS[1], kept)
  redis.call('SET', KEYS[2], 'send', 'PX', decided)
  return { 'send' }
end
if decision then
  return { 'join', tonumber(decision), nextAt }
end
if batch == 0 then
  -- Never the number of an earlier batch, not even when the group had expired.
  batch = math.max(now, tonumber(state[5] or 0) + 1)
  redis.call('HSET', KEYS[1], 'batch', batch, 'last', batch)
end
local items = KEYS[1] .. ':' .. string.format('%d', batch)
redis.call('HSET', items, ARGV[1], ARGV[2])
redis.call('PEXPIRE', items, kept)
redis.call('PEXPIRE', KEYS[1], kept)
redis.call('SET', KEYS[2], string.format('%d', batch), 'PX', decided)
return { 'join', batch, nextAt }
