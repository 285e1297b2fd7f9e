-- Reads a session in one round trip. KEYS: meta, posts, first, encoded, answers.
-- ARGV: 1 to read encoded, digest of the idempotency key or "".
local meta = redis.call('HMGET', KEYS[1], 'version', 'epoch', 'responder', 'fingerprint',
  'posts', 'rows', 'rows_of')
local answer = false
if ARGV[2] ~= '' then
  for _, entry in ipairs(redis.call('LRANGE', KEYS[5], 0, -1)) do
    if string.sub(entry, 1, #ARGV[2]) == ARGV[2] then answer = entry end
  end
end
local complete = redis.call('LLEN', KEYS[4])
-- Rows of other utterances are computed again, from the vectors.
if meta[7] ~= (meta[2] or '') .. ':' .. complete then meta[6] = false end
local encoded = {}
if ARGV[1] == '1' or not meta[6] then encoded = redis.call('LRANGE', KEYS[4], 0, -1) end
return {
  meta, redis.call('PTTL', KEYS[1]), redis.call('LRANGE', KEYS[2], 0, -1),
  redis.call('LRANGE', KEYS[3], 0, -1), encoded, complete, answer,
}
