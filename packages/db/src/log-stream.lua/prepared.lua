-- Whether a shard may be used by the server that runs now.
-- KEYS: state. ARGV: none.
-- Returns 1 when it was compared with ClickHouse since the server started and is not being drained, else 0.
local state = redis.call('HMGET', KEYS[1], 'run', 'draining')
local run = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
return state[1] == run and not state[2] and 1 or 0
