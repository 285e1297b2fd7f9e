-- Deletes an alias, and removes its name from the missing ones, unless it is the name of a pool.
-- KEYS: names of the pools, aliases, missing names. ARGV: alias.
-- Returns in how many of the aliases and the missing names it was.
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then return 0 end
return redis.call('HDEL', KEYS[2], ARGV[1]) + redis.call('SREM', KEYS[3], ARGV[1])
