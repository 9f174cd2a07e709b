-- Whether a shard has to be compared with ClickHouse before the server that runs now may use it.
-- KEYS: state. ARGV: none.
-- Returns {'ready' | 'draining' | 'needed', the run of the server}; 'draining' until all that it holds is stored.
local state = redis.call('HMGET', KEYS[1], 'run', 'draining', 'next', 'ingest:done', 'ingest:plan')
local run = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
if state[1] ~= run then
  return { 'needed', run }
end
if not state[2] then
  return { 'ready', run }
end
local isDrained = (state[4] or '1') == state[3] and not state[5]
return { isDrained and 'needed' or 'draining', run }
