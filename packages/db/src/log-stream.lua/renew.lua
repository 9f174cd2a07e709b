-- Keeps a lease, or gives it back when the time to live is 0.
-- KEYS: lease. ARGV: holder, time to live in ms.
-- Returns 1 when the holder held it, else 0: it must stop at once.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
if ARGV[2] == '0' then
  redis.call('DEL', KEYS[1])
else
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return 1
