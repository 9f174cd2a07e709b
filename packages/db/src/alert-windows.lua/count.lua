#!lua flags=allow-oom
-- Writes down in one step what the alert worker counted, and how far it has read.
-- KEYS: state, rules in force, outbox, first part of the keys of the windows (the rest is a rule's id).
-- ARGV: fence, turn, cursor (offset), cursor (number of the last change of rules), number of changes of rules, number
--       of windows, then of each change the rule's id and its document ('' when it is deleted), then of each window
--       the rule's id, 1 when it begins anew, and JSON {"set": [field, value, …], "unset": [field, …]}, then the
--       items for the outbox.
-- Guarantees: only the owner with the newest fence writes, each turn once: after an unknown outcome the same call may
-- be repeated. Counters, states, rules, cursor and outbox are always those of one place in the stream.
-- Returns how many items wait in the outbox, or -1 when the caller no longer owns the shard.
local state = redis.call('HMGET', KEYS[1], 'alert:fence', 'alert:turn')
local turn = tonumber(state[2] or 0)
if state[1] ~= ARGV[1] or (turn ~= tonumber(ARGV[2]) and turn + 1 ~= tonumber(ARGV[2])) then
  return -1
end
if turn == tonumber(ARGV[2]) then
  return redis.call('LLEN', KEYS[3])
end
redis.call('HSET', KEYS[1], 'alert:turn', ARGV[2], 'alert:done', ARGV[3], 'alert:controls', ARGV[4])
local at = 7
for _ = 1, tonumber(ARGV[5]) do
  if ARGV[at + 1] == '' then
    redis.call('HDEL', KEYS[2], ARGV[at])
  else
    redis.call('HSET', KEYS[2], ARGV[at], ARGV[at + 1])
  end
  at = at + 2
end
for _ = 1, tonumber(ARGV[6]) do
  local key = KEYS[4] .. ARGV[at]
  if ARGV[at + 1] == '1' then
    redis.call('UNLINK', key)
  end
  local fields = cjson.decode(ARGV[at + 2])
  for i = 1, #fields.unset, 1000 do
    redis.call('HDEL', key, unpack(fields.unset, i, math.min(i + 999, #fields.unset)))
  end
  for i = 1, #fields.set, 1000 do
    redis.call('HSET', key, unpack(fields.set, i, math.min(i + 999, #fields.set)))
  end
  at = at + 3
end
for i = at, #ARGV do
  redis.call('RPUSH', KEYS[3], ARGV[i])
end
return redis.call('LLEN', KEYS[3])
