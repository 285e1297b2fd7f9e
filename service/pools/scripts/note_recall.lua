-- Keeps the measured recall of a collection, unless the pool has moved to another one. Because of
-- the new stamp, the other replicas read it.
-- KEYS: meta. ARGV: collection, width, recall, number of candidates, new stamp.
if redis.call('HGET', KEYS[1], 'collection') ~= ARGV[1] then return end
redis.call('HSET', KEYS[1], 'width', ARGV[2], 'recall', ARGV[3], 'measured', ARGV[4],
  'stamp', ARGV[5])
