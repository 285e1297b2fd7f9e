-- Adds a pool to the list of names, unless an alias has its name.
-- KEYS: names of the pools, aliases. ARGV: name, incarnation, beginning of all names of the
-- namespace, most pools that it may have ("": any number).
-- Returns 'ok' or the problem; 'full' is followed by the number of pools.
if redis.call('HEXISTS', KEYS[2], ARGV[1]) == 1 then return {'alias'} end
if ARGV[4] ~= '' and redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then
  local has = 0
  for _, name in ipairs(redis.call('HKEYS', KEYS[1])) do
    if string.sub(name, 1, #ARGV[3]) == ARGV[3] then has = has + 1 end
  end
  if has >= tonumber(ARGV[4]) then return {'full', has} end
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
return {'ok'}
