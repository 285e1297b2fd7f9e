-- Gives a pool in a candidate store its next version after an edit, unless the pool has moved to
-- another collection.
-- KEYS: meta. ARGV: collection, new stamp, number of candidates. Returns the version, or 0.
if redis.call('HGET', KEYS[1], 'collection') ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'stamp', ARGV[2], 'size', ARGV[3])
local version = redis.call('HINCRBY', KEYS[1], 'version', 1)
redis.call('HSET', KEYS[1], 'base', version)
return version
