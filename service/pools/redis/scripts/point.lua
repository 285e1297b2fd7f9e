-- Points an alias at a pool. A name is never both, so an alias never points at an alias.
-- KEYS: names of the pools, aliases. ARGV: alias, pool, pool that it should point at now ("": any),
-- beginning of all names of the namespace, most aliases that it may have ("": any number).
-- Returns 'ok' or the problem; 'full' is followed by the number of aliases.
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then return {'is_pool'} end
if redis.call('HEXISTS', KEYS[1], ARGV[2]) == 0 then return {'no_pool'} end
local now = redis.call('HGET', KEYS[2], ARGV[1])
if ARGV[3] ~= '' and now ~= ARGV[3] and now ~= ARGV[2] then return {'conflict'} end  -- else a retry
if not now and ARGV[5] ~= '' then
  local has = 0
  for _, alias in ipairs(redis.call('HKEYS', KEYS[2])) do
    if string.sub(alias, 1, #ARGV[4]) == ARGV[4] then has = has + 1 end
  end
  if has >= tonumber(ARGV[5]) then return {'full', has} end
end
redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
return {'ok'}
