-- Ends a mail under way, so that the next one of its group may go.
-- KEYS: group (the items of a batch are at <group>:<batch>).
-- ARGV: job, 1 when it was sent and 0 when it was given up, now (ms), least time between two mails (ms), batch that the
--       mail held (0: none), how long that is still kept (ms).
-- Guarantees: only the job that holds the group lets go of it.
-- Returns 1 when it held the group.
if ARGV[5] ~= '0' then
  redis.call('PEXPIRE', KEYS[1] .. ':' .. ARGV[5], ARGV[6])
end
if redis.call('HGET', KEYS[1], 'busy') ~= ARGV[1] then
  return 0
end
redis.call('HDEL', KEYS[1], 'busy', 'busyUntil')
if ARGV[2] == '1' then
  redis.call('HSET', KEYS[1], 'nextAt', tonumber(ARGV[3]) + tonumber(ARGV[4]))
else
  redis.call('HSET', KEYS[1], 'nextAt', ARGV[3])
end
return 1
