-- KEYS: names of the pools. ARGV: name, incarnation. Forget the name, unless it is another's again.
if redis.call('HGET', KEYS[1], ARGV[1]) == ARGV[2] then redis.call('HDEL', KEYS[1], ARGV[1]) end
