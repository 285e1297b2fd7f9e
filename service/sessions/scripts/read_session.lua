-- Reads a session in one round trip. KEYS: meta, posts, first, second, rows, answers.
-- ARGV: number of rows to read (all: -1), 1 to read second, digest of the idempotency key or "".
local meta = redis.call('HMGET', KEYS[1], 'version', 'epoch', 'responder', 'fingerprint',
  'posts')
local answer = false
if ARGV[3] ~= '' then
  for _, entry in ipairs(redis.call('LRANGE', KEYS[6], 0, -1)) do
    if string.sub(entry, 1, #ARGV[3]) == ARGV[3] then answer = entry end
  end
end
local rows, second = {}, {}
local wanted = tonumber(ARGV[1])
if wanted < 0 then rows = redis.call('LRANGE', KEYS[5], 0, -1)
elseif wanted > 0 then rows = redis.call('LRANGE', KEYS[5], -wanted, -1) end
if ARGV[2] == '1' then second = redis.call('LRANGE', KEYS[4], 0, -1) end
return {
  meta, redis.call('PTTL', KEYS[1]), redis.call('LRANGE', KEYS[2], 0, -1),
  redis.call('LRANGE', KEYS[3], 0, -1), second, rows,
  redis.call('LLEN', KEYS[4]), redis.call('LLEN', KEYS[5]), answer,
}
