-- Creates a pool, or changes the settings of one, unless that has another encoder or another
-- candidate store.
-- KEYS: meta, log. ARGV: incarnation, Unix seconds, encoder and store ("": any), collection of the
-- new pool and fingerprint of its model ("": a local pool), names and values of settings.
-- Returns incarnation, and the fields of the head.
if redis.call('HSETNX', KEYS[1], 'incarnation', ARGV[1]) == 1 then
  redis.call('HSET', KEYS[1], 'stamp', ARGV[1], 'version', 0, 'base', 0, 'stored', 0,
    'created_at', ARGV[2], 'encoder', ARGV[3], 'description', '')
  if ARGV[5] ~= '' then
    redis.call('HSET', KEYS[1], 'store', ARGV[4], 'collection', ARGV[5], 'fingerprint', ARGV[6])
  end
  redis.call('DEL', KEYS[2])  -- left by a pool whose meta was evicted
end
local found = redis.call('HMGET', KEYS[1], 'encoder', 'store')
local function is(wanted, value, default)
  if not value or value == '' then value = default end
  return wanted == '' or wanted == value
end
if #ARGV > 6 and is(ARGV[3], found[1], 'default') and is(ARGV[4], found[2], 'local') then
  redis.call('HSET', KEYS[1], unpack(ARGV, 7))
end
return redis.call('HMGET', KEYS[1], 'incarnation', 'stamp', 'noted', 'encoder', 'store',
  'description', 'min_confidence', 'calibration', 'learn', 'fallback')
