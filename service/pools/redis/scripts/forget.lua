-- Removes a deleted pool from the list of names, unless a newer pool has its name.
-- KEYS: names of the pools. ARGV: name, incarnation.
if redis.call('HGET', KEYS[1], ARGV[1]) == ARGV[2] then redis.call('HDEL', KEYS[1], ARGV[1]) end
