-- Deletes a pool, unless it changed since the writer read it.
-- KEYS: meta, log, chunks. ARGV: incarnation, stamp, first chunk of the log's first entry ("": none).
-- The chunk shows whether the pool was folded: a fold replaces the chunks, but keeps the stamp.
local meta = redis.call('HMGET', KEYS[1], 'incarnation', 'stamp')
if meta[1] ~= ARGV[1] or meta[2] ~= ARGV[2] then return 'conflict' end
local first = redis.call('LINDEX', KEYS[2], 0)
if (first and cjson.decode(first).chunks[1] or '') ~= ARGV[3] then return 'conflict' end
for i = 1, #KEYS do redis.call('UNLINK', KEYS[i]) end
return 'ok'
