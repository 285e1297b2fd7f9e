-- Keeps the measured recall of a collection, unless the pool has moved to another one. Other
-- replicas read it, because the head of the pool changes; the stamp does not, since this is no edit.
-- KEYS: meta. ARGV: collection, width, recall, number of candidates, new mark.
if redis.call('HGET', KEYS[1], 'collection') ~= ARGV[1] then return end
redis.call('HSET', KEYS[1], 'width', ARGV[2], 'recall', ARGV[3], 'measured', ARGV[4],
  'noted', ARGV[5])
