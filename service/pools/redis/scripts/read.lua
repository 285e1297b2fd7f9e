-- Reads the part of a pool that a replica lacks: its meta and the newest entries of its log.
-- KEYS: meta, log. ARGV: incarnation, version and stamp that the reader has.
-- Returns meta, the number of entries at the start of the log that the reader has, and the others.
-- The reader has none if its version is older than a fold, of an earlier pool of this name, or of
-- writes that Redis has lost.
local meta = redis.call('HMGET', KEYS[1],
  'incarnation', 'version', 'stamp', 'base', 'stored', 'bytes', 'created_at',
  'store', 'description', 'min_confidence', 'calibration', 'learn', 'fallback')
if not meta[1] then return {} end
local has = tonumber(ARGV[2]) - tonumber(meta[4])
if meta[1] ~= ARGV[1] or has <= 0 then
  has = 0
else
  local last = redis.call('LINDEX', KEYS[2], has - 1)
  if not last or cjson.decode(last).stamp ~= ARGV[3] then has = 0 end
end
return {meta, has, redis.call('LRANGE', KEYS[2], has, -1)}
