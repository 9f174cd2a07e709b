#!lua flags=allow-oom
-- Keeps a lease, or gives it back when the time to live is 0.
-- KEYS: lease[, state]. ARGV: holder, time to live in ms.
-- Returns 'kept', or 'lost': the caller must stop at once; with the state given also, when it was kept, 'unprepared'
-- (this server was not compared with ClickHouse since it started) or 'draining' (it is behind ClickHouse).
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 'lost'
end
if ARGV[2] == '0' then
  redis.call('DEL', KEYS[1])
else
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
if KEYS[2] then
  local state = redis.call('HMGET', KEYS[2], 'run', 'draining')
  local run = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
  if state[1] ~= run then
    return 'unprepared'
  end
  if state[2] then
    return 'draining'
  end
end
return 'kept'
