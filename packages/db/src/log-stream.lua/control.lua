-- Puts a change of rules on the shard's stream: behind every entry admitted so far, before every later one.
-- KEYS: log, state. ARGV: the change, changes that may wait for the alert worker.
-- Guarantees: it takes no offset. Its stream id is the last offset given out and, as second half, its number, which
-- counts from 1 and never comes again; blocks have 0 there.
-- Returns {'put'}, {'full'} when too many wait, or {'unprepared'} for a shard without an epoch.
local state = redis.call('HMGET', KEYS[2], 'epoch', 'next', 'controls', 'alert:controls')
if not state[1] then
  return { 'unprepared' }
end
local number = tonumber(state[3] or 0) + 1
if number - tonumber(state[4] or 0) > tonumber(ARGV[2]) then
  return { 'full' }
end
redis.call('XADD', KEYS[1], string.format('%.0f-%.0f', tonumber(state[2]) - 1, number), 'rules', ARGV[1])
redis.call('HSET', KEYS[2], 'controls', string.format('%.0f', number))
return { 'put' }
