-- Counts a session among the live ones of its namespace, or returns 0 if the namespace is full.
-- KEYS: the ids of the live sessions, by the second at which each expires.
-- ARGV: id, now, second at which it expires, most sessions or "" for one that exists already.
local live = redis.call('ZCOUNT', KEYS[1], '(' .. ARGV[2], '+inf')
if ARGV[4] ~= '' and not redis.call('ZSCORE', KEYS[1], ARGV[1]) and live >= tonumber(ARGV[4]) then
  return 0
end
-- First of the writes, because a Redis without memory rejects the script here. Otherwise it would
-- count a session that it does not keep.
redis.call('ZADD', KEYS[1], ARGV[3], ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', ARGV[2])
redis.call('EXPIREAT', KEYS[1], ARGV[3])
return 1
