#!lua flags=allow-oom
-- Takes items off the head of a list.
-- KEYS: the list. ARGV: the items, whole, in the order in which they were read from its head.
-- Guarantees: only what stands at the head goes, so nothing is ever searched for: items that are gone (another owner
-- took them, or there was no room) are passed over. One call is one sync to disk.
-- Returns how many went.
local gone = 0
for i = 1, #ARGV do
  if redis.call('LINDEX', KEYS[1], 0) == ARGV[i] then
    redis.call('LPOP', KEYS[1])
    gone = gone + 1
  end
end
return gone
