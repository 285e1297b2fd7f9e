-- Create a pool, or change settings of an existing one; one that has another encoder does not change.
-- KEYS: meta, log. ARGV: incarnation, Unix seconds, encoder ("": any), names and values of settings.
-- Returns incarnation and encoder.
if redis.call('HSETNX', KEYS[1], 'incarnation', ARGV[1]) == 1 then
  redis.call('HSET', KEYS[1], 'stamp', ARGV[1], 'version', 0, 'base', 0, 'stored', 0,
    'created_at', ARGV[2], 'encoder', ARGV[3], 'description', '')
  redis.call('DEL', KEYS[2])  -- left by a pool whose meta was evicted
end
local found = redis.call('HMGET', KEYS[1], 'incarnation', 'encoder')
local encoder = found[2]
if not encoder or encoder == '' then encoder = 'default' end
if #ARGV > 3 and (ARGV[3] == '' or ARGV[3] == encoder) then
  redis.call('HSET', KEYS[1], unpack(ARGV, 4))
end
return {found[1], encoder}
