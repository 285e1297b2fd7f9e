-- Counts a session among the live ones of its namespace, or returns 0 if the namespace is full.
-- KEYS: the ids of the live sessions, by the second at which each expires.
-- ARGV: id, now, second at which it expires, most sessions or "" for one that exists already.
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', ARGV[2])
if ARGV[4] ~= '' and not redis.call('ZSCORE', KEYS[1], ARGV[1])
    and redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[4]) then return 0 end
redis.call('ZADD', KEYS[1], ARGV[3], ARGV[1])
redis.call('EXPIREAT', KEYS[1], ARGV[3])
return 1
