-- One mutation: all of it, or nothing where the version is not the one that was read.
-- KEYS: meta, posts, first, second, rows, answers.
-- ARGV: version read (absent: ""), new version, epoch, responder, fingerprint, seconds to live,
--   answer or "", answers kept; then for posts, first, second, rows: how many to keep and how many
--   come; then what comes.
local version = redis.call('HGET', KEYS[1], 'version') or ''
if version ~= ARGV[1] then return 0 end
-- A list may have lost its items (eviction): nothing may be put behind a gap.
for list = 0, 3 do
  local kept = tonumber(ARGV[9 + 2 * list])
  if redis.call('LLEN', KEYS[2 + list]) < kept then return 0 end
end
-- The first write is one that a Redis without memory refuses; a later one it would let through.
redis.call('HSET', KEYS[1], 'version', ARGV[2], 'epoch', ARGV[3], 'responder', ARGV[4],
  'fingerprint', ARGV[5], 'posts', ARGV[9] + ARGV[10])
-- The answers to posts that are taken back are forgotten with them: their keys may come again.
if redis.call('LLEN', KEYS[2]) > tonumber(ARGV[9]) then
  for _, entry in ipairs(redis.call('LRANGE', KEYS[6], 0, -1)) do
    if tonumber(string.match(entry, '"turn":(%d+)')) > tonumber(ARGV[9]) then
      redis.call('LREM', KEYS[6], 1, entry)
    end
  end
end
local place = 17
for list = 0, 3 do
  local key = KEYS[2 + list]
  local kept, count = tonumber(ARGV[9 + 2 * list]), tonumber(ARGV[10 + 2 * list])
  local gone = kept == 0 and redis.call('LLEN', key) or 0
  if kept > 0 then redis.call('LTRIM', key, 0, kept - 1) end
  for item = place, place + count - 1 do redis.call('RPUSH', key, ARGV[item]) end
  -- Last, since a list that vanishes cannot come back while its slot moves to another node.
  if gone > 0 then redis.call('LTRIM', key, gone, -1) end
  place = place + count
end
if ARGV[7] ~= '' then
  redis.call('RPUSH', KEYS[6], ARGV[7])
  redis.call('LTRIM', KEYS[6], -tonumber(ARGV[8]), -1)
end
-- While its slot moves, an empty list is a key of another node: an error, though all is done.
for _, key in ipairs(KEYS) do redis.pcall('EXPIRE', key, ARGV[6]) end
return 1
