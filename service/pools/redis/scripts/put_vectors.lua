-- Adds a model's vectors to a chunk, unless the chunk was deleted. KEYS: chunk. ARGV: field, vectors.
if redis.call('EXISTS', KEYS[1]) == 0 then return end
-- Keep the vectors of the last two models, so that going back to the last one costs nothing.
local kind = string.match(ARGV[1], '^[^:]*')
local newest = kind == 'vectors' and 'newest' or 'newest_' .. kind
local last = redis.call('HGET', KEYS[1], newest)
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2], newest, ARGV[1])
if not last then return end
for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
  if string.match(field, '^[^:]*') == kind and field ~= ARGV[1] and field ~= last then
    redis.call('HDEL', KEYS[1], field)
  end
end
