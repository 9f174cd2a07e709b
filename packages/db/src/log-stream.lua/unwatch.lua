-- Forgets projects whose last reader went away long enough ago, so that the hash stays small.
-- KEYS: tailed. ARGV: none.
-- Returns the number of projects forgotten.
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local forgotten = 0
local fields = redis.call('HGETALL', KEYS[1])
for i = 1, #fields, 2 do
  if fields[i] ~= 'last' and tonumber(fields[i + 1]) <= now then
    redis.call('HDEL', KEYS[1], fields[i])
    forgotten = forgotten + 1
  end
end
return forgotten
