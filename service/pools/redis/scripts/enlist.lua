-- Adds a pool to the list of names, unless an alias has its name.
-- KEYS: names of the pools, aliases. ARGV: name, incarnation.
if redis.call('HEXISTS', KEYS[2], ARGV[1]) == 1 then return 'alias' end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
return 'ok'
