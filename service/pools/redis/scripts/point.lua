-- Points an alias at a pool. A name is never both, so an alias never points at an alias.
-- KEYS: names of the pools, aliases. ARGV: alias, pool, pool that it should point at now ("": any).
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then return 'is_pool' end
if redis.call('HEXISTS', KEYS[1], ARGV[2]) == 0 then return 'no_pool' end
local now = redis.call('HGET', KEYS[2], ARGV[1])
if ARGV[3] ~= '' and now ~= ARGV[3] and now ~= ARGV[2] then return 'conflict' end  -- else a retry
redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
return 'ok'
