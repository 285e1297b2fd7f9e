-- Removes a pool from the list of names and from the missing names, unless the name is an alias or
-- an alias points at it.
-- KEYS: names of the pools, aliases, missing names. ARGV: name.
-- Returns 'ok', the incarnation ("": not listed) and whether it was missing (0 or 1); 'is_alias' and
-- its pool; or 'has_alias' and that alias.
local to = redis.call('HGET', KEYS[2], ARGV[1])
if to then return {'is_alias', to} end
local aliases = redis.call('HGETALL', KEYS[2])
for i = 1, #aliases, 2 do
  if aliases[i + 1] == ARGV[1] then return {'has_alias', aliases[i]} end
end
local incarnation = redis.call('HGET', KEYS[1], ARGV[1])
redis.call('HDEL', KEYS[1], ARGV[1])
return {'ok', incarnation or '', redis.call('SREM', KEYS[3], ARGV[1])}
