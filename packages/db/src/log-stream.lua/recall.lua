-- What is remembered under an idempotency key, for a body that would be refused now.
-- KEYS: idempotency. ARGV: body hash.
-- Returns {'replayed', receipt}, {'mismatch'}, or false when nothing is remembered.
local known = redis.call('HMGET', KEYS[1], 'body', 'receipt')
if not known[1] then
  return false
end
if known[1] ~= ARGV[1] then
  return { 'mismatch' }
end
-- A write, so that the WAIT behind this call covers the first one too.
redis.call('HINCRBY', KEYS[1], 'replays', 1)
return { 'replayed', known[2] }
