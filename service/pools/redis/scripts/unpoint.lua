-- Deletes an alias, and removes its name from the missing ones.
-- KEYS: aliases, missing names. ARGV: alias. Returns how many of both there were.
return redis.call('HDEL', KEYS[1], ARGV[1]) + redis.call('SREM', KEYS[2], ARGV[1])
