-- KEYS: meta. ARGV: incarnation, description, Unix seconds. A pool that is there keeps its contents.
if redis.call('HSETNX', KEYS[1], 'incarnation', ARGV[1]) == 1 then
  redis.call('HSET', KEYS[1], 'stamp', ARGV[1], 'version', 0, 'base', 0, 'stored', 0,
    'created_at', ARGV[3])
end
redis.call('HSET', KEYS[1], 'description', ARGV[2])
return redis.call('HGET', KEYS[1], 'incarnation')
