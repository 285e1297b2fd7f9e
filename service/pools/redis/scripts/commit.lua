-- Appends an edit to the log of a pool, unless the pool changed since the writer read it, or the
-- writer's lock may have expired.
-- KEYS: meta, log, staged chunks. ARGV: incarnation, stamp read, new stamp, entry, its candidates,
-- number and bytes of the candidates after it, Unix seconds until which it may write ("": any time).
local meta = redis.call('HMGET', KEYS[1], 'incarnation', 'stamp')
if meta[1] ~= ARGV[1] or meta[2] ~= ARGV[2] then return 'conflict' end
if ARGV[8] ~= '' then
  local now = redis.call('TIME')
  if now[1] + now[2] / 1e6 >= tonumber(ARGV[8]) then return 'conflict' end
end
for i = 3, #KEYS do
  if redis.call('EXISTS', KEYS[i]) == 0 then return 'expired' end
end
for i = 3, #KEYS do redis.call('PERSIST', KEYS[i]) end
redis.call('RPUSH', KEYS[2], ARGV[4])
redis.call('HINCRBY', KEYS[1], 'version', 1)
redis.call('HINCRBY', KEYS[1], 'stored', ARGV[5])
redis.call('HSET', KEYS[1], 'stamp', ARGV[3], 'size', ARGV[6], 'bytes', ARGV[7])
return 'ok'
