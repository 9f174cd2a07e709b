#!lua flags=allow-oom
-- Takes items off a list; they were read from its head, so each is found at once.
-- KEYS: the list. ARGV: the items, whole.
-- Guarantees: an item that another owner took off meanwhile is passed over. One call is one sync to disk.
-- Returns how many went.
local gone = 0
for i = 1, #ARGV do
  gone = gone + redis.call('LREM', KEYS[1], 1, ARGV[i])
end
return gone
