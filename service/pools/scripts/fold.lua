-- Put one entry in the place of the oldest ones, if they still are those that were folded.
-- KEYS: meta, log, staged chunks, chunks that go. ARGV: incarnation, base, entries folded, stamp of
-- the last of them, entry, how many chunks are staged, candidates more (fewer: below 0), seconds
-- until chunks go. Redis undoes nothing where a command fails: what can fail comes first.
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
-- A list that vanishes cannot come back while its slot moves to another node.
redis.call('LSET', KEYS[2], ARGV[3] - 1, ARGV[5])
redis.call('LTRIM', KEYS[2], ARGV[3] - 1, -1)
for i = 3 + staged, #KEYS do redis.call('EXPIRE', KEYS[i], ARGV[8]) end
return 'ok'
