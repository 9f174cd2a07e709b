-- Decides which notifications of one project may wait in the queue of a channel.
-- KEYS: those of the project that wait (sorted set: id, time at which it is forgotten), the queue's jobs that wait, and
--       those that are delayed.
-- ARGV: first part of the keys of the queue's jobs, now (ms), how long a waiting one is counted (ms), how many of a
--       project may wait, how many while reminders are let in, how many once the queue is crowded, how many jobs crowd
--       it; then for each notification: its id, and 1 when it is a reminder.
-- Guarantees: what is in the queue already, or was let in before, is let in again and counts once.
-- Returns for each notification 1, or 0 when it must be left out.
local now, kept = tonumber(ARGV[2]), tonumber(ARGV[3])
local most, reminders = tonumber(ARGV[4]), tonumber(ARGV[5])
if redis.call('LLEN', KEYS[2]) + redis.call('ZCARD', KEYS[3]) >= tonumber(ARGV[7]) then
  most = tonumber(ARGV[6])
end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
local waiting = redis.call('ZCARD', KEYS[1])
local answer = {}
for at = 8, #ARGV, 2 do
  local id, bound = ARGV[at], most
  if ARGV[at + 1] == '1' then
    bound = math.min(most, reminders)
  end
  if redis.call('ZSCORE', KEYS[1], id) or redis.call('EXISTS', ARGV[1] .. id) == 1 then
    answer[#answer + 1] = 1
  elseif waiting < bound then
    redis.call('ZADD', KEYS[1], now + kept, id)
    waiting = waiting + 1
    answer[#answer + 1] = 1
  else
    answer[#answer + 1] = 0
  end
end
return answer
