-- transact: changes the control plane, all or nothing, and says what it did.
--
-- Guarantees: either every check holds and every write, the entry in the change log and the invalidation
-- message happen, or nothing happens. Checks come before the first write, and the change log comes first
-- among the writes, so that a Redis out of memory refuses the whole call.
--
-- KEYS  1: the change log; 2…: the keys that checks and writes name by their place here
-- ARGV  1: channel of the invalidation message  2: the message  3: the change, JSON  4: the writes, JSON
--       5: how long the change log is kept, ms   6: number of checks  7: number of writes
--       then 3 arguments a check: operation, key, argument
--       then 4 arguments a write: operation, key, argument, argument
-- Answer  0 when done, else the number of the first check that failed (from 1)

local argument = 7

local function next_arguments(count)
  local from = argument + 1
  argument = argument + count
  return unpack(ARGV, from, argument)
end

local checks = {
  absent = function(key)
    return redis.call('EXISTS', key) == 0
  end,
  exists = function(key)
    return redis.call('EXISTS', key) == 1
  end,
  -- A document's version is its first field. Decoding the whole would fail on texts that Lua's JSON refuses.
  version = function(key, version)
    local document = redis.call('GET', key)
    return document and string.match(document, '^{"version":(%d+)[,}]') == version
  end,
  below = function(key, limit)
    return redis.call('ZCARD', key) < tonumber(limit)
  end,
}

for number = 1, tonumber(ARGV[6]) do
  local operation, key, value = next_arguments(3)
  if not checks[operation](KEYS[tonumber(key)], value) then
    return number
  end
end

local writes = {
  put = function(key, text)
    redis.call('SET', key, text)
  end,
  lend = function(key, text, ttl_ms)
    redis.call('SET', key, text, 'PX', ttl_ms)
  end,
  delete = function(key)
    redis.call('DEL', key)
  end,
  add = function(key, member, score)
    redis.call('ZADD', key, score, member)
  end,
  remove = function(key, member)
    redis.call('ZREM', key, member)
  end,
}

local time = redis.call('TIME')
local oldest_ms = string.format('%.0f', time[1] * 1000 - ARGV[5])
redis.call('XADD', KEYS[1], 'MINID', '~', oldest_ms, '*', 'change', ARGV[3], 'writes', ARGV[4])

for _ = 1, tonumber(ARGV[7]) do
  local operation, key, first, second = next_arguments(4)
  writes[operation](KEYS[tonumber(key)], first, second)
end

redis.call('PUBLISH', ARGV[1], ARGV[2])
return 0
