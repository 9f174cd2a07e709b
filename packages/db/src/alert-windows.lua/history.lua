#!lua flags=allow-oom
-- Keeps rows for the history until they are in ClickHouse.
-- KEYS: history. ARGV: rows kept at most, rows….
-- Guarantees: when ClickHouse stays away for long the oldest rows go, never the newest.
-- Returns how many went.
local length = 0
for i = 2, #ARGV do
  length = redis.call('RPUSH', KEYS[1], ARGV[i])
end
local over = length - tonumber(ARGV[1])
if over <= 0 then
  return 0
end
redis.call('LTRIM', KEYS[1], over, -1)
return over
