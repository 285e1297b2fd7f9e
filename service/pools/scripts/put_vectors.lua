-- KEYS: chunk. ARGV: field, vectors. A chunk that was removed does not come back by its vectors.
if redis.call('EXISTS', KEYS[1]) == 1 then redis.call('HSET', KEYS[1], ARGV[1], ARGV[2]) end
