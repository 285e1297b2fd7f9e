-- Applies a change as a whole, or returns 0 where the version is not the one that was read.
-- KEYS: meta, posts, first, encoded, answers.
-- ARGV: version read (no session: ""), new version, epoch, responder, fingerprint, seconds to live,
--   answer or "", number of answers to keep, rows or "", what they are of; then for posts, first and
--   encoded: how many items to keep and how many to append; then the items to append.
local version = redis.call('HGET', KEYS[1], 'version') or ''
if version ~= ARGV[1] then return 0 end
-- Redis may have evicted a list: no item may be appended after a gap.
for list = 0, 2 do
  local kept = tonumber(ARGV[11 + 2 * list])
  if redis.call('LLEN', KEYS[2 + list]) < kept then return 0 end
end
-- A Redis without memory rejects a script at its first write if that is an HSET. It would let later
-- writes through.
redis.call('HSET', KEYS[1], 'version', ARGV[2], 'epoch', ARGV[3], 'responder', ARGV[4],
  'fingerprint', ARGV[5], 'posts', ARGV[11] + ARGV[12], 'rows', ARGV[9], 'rows_of', ARGV[10])
-- An undo removes the answers to the turns that it removes: their keys may be used again.
if redis.call('LLEN', KEYS[2]) > tonumber(ARGV[11]) then
  for _, entry in ipairs(redis.call('LRANGE', KEYS[5], 0, -1)) do
    if tonumber(string.match(entry, '"turn":(%d+)')) > tonumber(ARGV[11]) then
      redis.call('LREM', KEYS[5], 1, entry)
    end
  end
end
local place = 17
for list = 0, 2 do
  local key = KEYS[2 + list]
  local kept, count = tonumber(ARGV[11 + 2 * list]), tonumber(ARGV[12 + 2 * list])
  local gone = kept == 0 and redis.call('LLEN', key) or 0
  if kept > 0 then redis.call('LTRIM', key, 0, kept - 1) end
  for item = place, place + count - 1 do redis.call('RPUSH', key, ARGV[item]) end
  -- Last, because a list that becomes empty cannot be created again while its slot migrates.
  if gone > 0 then redis.call('LTRIM', key, gone, -1) end
  place = place + count
end
if ARGV[7] ~= '' then
  redis.call('RPUSH', KEYS[5], ARGV[7])
  redis.call('LTRIM', KEYS[5], -tonumber(ARGV[8]), -1)
end
-- While its slot migrates, an empty list belongs to the other node, and EXPIRE fails: ignore it.
for _, key in ipairs(KEYS) do redis.pcall('EXPIRE', key, ARGV[6]) end
return 1
