-- Moves a pool to the collection that was filled for it, unless the pool changed meanwhile.
-- KEYS: meta, log, chunks. ARGV: incarnation, stamp read, first chunk of the log's first entry
-- ("": none), new stamp, store, collection, fingerprint, number of candidates, seconds until the
-- chunks expire. A fold replaces the chunks, but keeps the stamp.
local meta = redis.call('HMGET', KEYS[1], 'incarnation', 'stamp')
if meta[1] ~= ARGV[1] or meta[2] ~= ARGV[2] then return 'conflict' end
local first = redis.call('LINDEX', KEYS[2], 0)
if (first and cjson.decode(first).chunks[1] or '') ~= ARGV[3] then return 'conflict' end
local version = redis.call('HINCRBY', KEYS[1], 'version', 1)
redis.call('HSET', KEYS[1], 'stamp', ARGV[4], 'store', ARGV[5], 'collection', ARGV[6],
  'fingerprint', ARGV[7], 'size', ARGV[8], 'base', version, 'stored', 0, 'bytes', 0)
redis.call('HDEL', KEYS[1], 'width', 'recall', 'measured', 'noted')
redis.call('DEL', KEYS[2])
for i = 3, #KEYS do redis.call('EXPIRE', KEYS[i], ARGV[9]) end
return 'ok'
