-- Returns the names of all pools, and each alias followed by its pool, as they are at one moment.
-- KEYS: names of the pools, aliases.
return {redis.call('HKEYS', KEYS[1]), redis.call('HGETALL', KEYS[2])}
