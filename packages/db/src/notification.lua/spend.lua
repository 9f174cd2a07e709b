-- Takes one mail from what a project may send in a day.
-- KEYS: mails of the project on that day (hash: number by recipient, and of all), whether this mail was counted.
-- ARGV: recipient, most mails to one recipient, most mails of the project, how long the day is kept (ms), how long is
--       remembered that the mail was counted (ms).
-- Guarantees: a mail counts once, however often it is tried; one that is refused does not count.
-- Returns 'ok', or which bound is reached: 'recipient' or 'project'.
if redis.call('EXISTS', KEYS[2]) == 1 then
  return 'ok'
end
local sent = redis.call('HMGET', KEYS[1], ARGV[1], 'all')
if tonumber(sent[1] or 0) >= tonumber(ARGV[2]) then
  return 'recipient'
end
if tonumber(sent[2] or 0) >= tonumber(ARGV[3]) then
  return 'project'
end
redis.call('HINCRBY', KEYS[1], ARGV[1], 1)
redis.call('HINCRBY', KEYS[1], 'all', 1)
redis.call('PEXPIRE', KEYS[1], ARGV[4])
redis.call('SET', KEYS[2], '1', 'PX', ARGV[5])
return 'ok'
