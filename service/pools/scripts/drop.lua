-- KEYS: meta, log, chunks. ARGV: incarnation, stamp.
local meta = redis.call('HMGET', KEYS[1], 'incarnation', 'stamp')
if meta[1] ~= ARGV[1] or meta[2] ~= ARGV[2] then return 'conflict' end
for i = 1, #KEYS do redis.call('UNLINK', KEYS[i]) end
return 'ok'
