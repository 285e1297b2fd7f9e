-- Write a chunk that expires unless it is committed. KEYS: chunk. ARGV: seconds, fields and values.
redis.call('HSET', KEYS[1], unpack(ARGV, 2))
redis.call('EXPIRE', KEYS[1], ARGV[1])
