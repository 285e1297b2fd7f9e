-- Counts a session among the live ones of its namespace, or returns 0 if the namespace is full.
-- KEYS: the ids of the live sessions, by the second at which each expires by the server's clock.
-- ARGV: id, seconds to live, most sessions or "" for one that exists already.
local now = tonumber(redis.call('TIME')[1])
local expires = now + ARGV[2]
local live = redis.call('ZCOUNT', KEYS[1], '(' .. now, '+inf')
if ARGV[3] ~= '' and not redis.call('ZSCORE', KEYS[1], ARGV[1]) and live >= tonumber(ARGV[3]) then
  return 0
end
-- First of the writes, because a Redis without memory rejects the script here. Otherwise it would
-- count a session that it does not keep.
redis.call('ZADD', KEYS[1], expires, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
redis.call('EXPIREAT', KEYS[1], expires)
return 1
