-- For tests: says how often it ran. KEYS: counter.
return redis.call('INCR', KEYS[1])
