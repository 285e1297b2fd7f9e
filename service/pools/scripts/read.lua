-- KEYS: meta, log. ARGV: incarnation, version, stamp of what the reader has.
-- Returns meta, how many entries at the log's start the reader has already, and the others.
-- The reader has none of them where its version is from before a fold, of another pool of this
-- name, or of a log whose end Redis has lost.
local meta = redis.call('HMGET', KEYS[1],
  'incarnation', 'version', 'stamp', 'base', 'stored', 'description', 'created_at')
if not meta[1] then return {} end
local has = tonumber(ARGV[2]) - tonumber(meta[4])
if meta[1] ~= ARGV[1] or has <= 0 then
  has = 0
else
  local last = redis.call('LINDEX', KEYS[2], has - 1)
  if not last or cjson.decode(last).stamp ~= ARGV[3] then has = 0 end
end
return {meta, has, redis.call('LRANGE', KEYS[2], has, -1)}
