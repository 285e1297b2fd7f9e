-- Writes a chunk of candidates, which expires unless an entry of the log commits it. KEYS: chunk. ARGV: seconds, fields and values.
redis.call('HSET', KEYS[1], unpack(ARGV, 2))
redis.call('EXPIRE', KEYS[1], ARGV[1])
