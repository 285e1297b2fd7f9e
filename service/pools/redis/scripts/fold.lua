-- Replaces the oldest entries of a log by one, if they are still those that the writer folded.
-- KEYS: meta, log, staged chunks, old chunks. ARGV: incarnation, base, number of entries folded,
-- stamp of the last of them, new entry, number of staged chunks, change in stored candidates,
-- seconds until the old chunks expire. Redis does not roll back: commands that can fail come first.
local meta = redis.call('HMGET', KEYS[1], 'incarnation', 'base')
if meta[1] ~= ARGV[1] or meta[2] ~= ARGV[2] then return 'conflict' end
local last = redis.call('LINDEX', KEYS[2], ARGV[3] - 1)
if not last or cjson.decode(last).stamp ~= ARGV[4] then return 'conflict' end
local staged = tonumber(ARGV[6])
for i = 3, 2 + staged do
  if redis.call('EXISTS', KEYS[i]) == 0 then return 'expired' end
end
redis.call('HINCRBY', KEYS[1], 'stored', ARGV[7])
redis.call('HINCRBY', KEYS[1], 'base', ARGV[3] - 1)
for i = 3, 2 + staged do redis.call('PERSIST', KEYS[i]) end
-- Never empty the list: an empty one cannot be recreated while its slot moves to another node.
redis.call('LSET', KEYS[2], ARGV[3] - 1, ARGV[5])
redis.call('LTRIM', KEYS[2], ARGV[3] - 1, -1)
for i = 3 + staged, #KEYS do redis.call('EXPIRE', KEYS[i], ARGV[8]) end
return 'ok'
