-- Create a pool, or describe an existing one anew; one that has another encoder does not change.
-- KEYS: meta, log. ARGV: incarnation, description, Unix seconds, encoder ("": any).
-- Returns incarnation and encoder.
if redis.call('HSETNX', KEYS[1], 'incarnation', ARGV[1]) == 1 then
  redis.call('HSET', KEYS[1], 'stamp', ARGV[1], 'version', 0, 'base', 0, 'stored', 0,
    'created_at', ARGV[3], 'encoder', ARGV[4])
  redis.call('DEL', KEYS[2])  -- left by a pool whose meta was evicted
end
local found = redis.call('HMGET', KEYS[1], 'incarnation', 'encoder')
local encoder = found[2]
if not encoder or encoder == '' then encoder = 'default' end
if ARGV[4] == '' or ARGV[4] == encoder then
  redis.call('HSET', KEYS[1], 'description', ARGV[2])
end
return {found[1], encoder}
