-- Applies a whole change; returns 0 and changes nothing if the session changed since it was read.
-- KEYS: meta, posts, first, second (or other_first, other_second), answers, feedback; then, if
--   utterances changed, the lists that another model or release keeps of them.
-- ARGV: version read (no session: ""), new version, epoch, responder, fingerprint, seconds to live,
--   answer or "", most answers and bytes of them to keep, "" or "other_", rows or "", what they are
--   of, number of utterances that did not change; then for posts, first and encoded: how many items
--   to keep and how many to append; the filter, or "" to leave it; the offer of the new turn, or
--   ""; how many turns keep their offers; then the items to append.
local mine = ARGV[10]
local theirs = mine == '' and 'other_' or ''
local version, epoch, their_epoch, posts =
  unpack(redis.call('HMGET', KEYS[1], 'version', 'epoch', theirs .. 'epoch', 'posts'))
if (version or '') ~= ARGV[1] then return 0 end
-- Redis may have evicted a list: no item may be appended after a gap.
local lengths = {}
for list = 0, 2 do
  lengths[list] = redis.call('LLEN', KEYS[2 + list])
  if lengths[list] < tonumber(ARGV[14 + 2 * list]) then return 0 end
end
-- A Redis without memory rejects a script at its first write if that is an HSET. It would let later
-- writes through.
redis.call('HSET', KEYS[1], 'version', ARGV[2], 'epoch', ARGV[3], 'responder', ARGV[4],
  'posts', ARGV[14] + ARGV[15], mine .. 'fingerprint', ARGV[5], mine .. 'epoch', ARGV[3],
  mine .. 'rows', ARGV[11], mine .. 'rows_of', ARGV[12])
if ARGV[20] ~= '' then redis.call('HSET', KEYS[1], 'where', ARGV[20]) end
local kept_turns, new_turns = tonumber(ARGV[14]), tonumber(ARGV[15])
for turn = kept_turns + 1, tonumber(posts or 0) do
  redis.call('HDEL', KEYS[1], 'offered:' .. turn)
end
if new_turns > 0 then
  local turn = kept_turns + new_turns
  redis.call('HDEL', KEYS[1], 'offered:' .. turn - ARGV[22])
  if ARGV[21] ~= '' then redis.call('HSET', KEYS[1], 'offered:' .. turn, ARGV[21]) end
end
-- The vectors of another model stay valid without those of the utterances that changed.
if #KEYS > 6 then
  if epoch == their_epoch then redis.call('HSET', KEYS[1], theirs .. 'epoch', ARGV[3]) end
  for list = 7, #KEYS do
    local gone = redis.call('LLEN', KEYS[list]) - ARGV[13]
    if gone > 0 then redis.call('RPOP', KEYS[list], gone) end
  end
end
-- An undo removes the answers to the turns that it removes: their keys may be used again. A new
-- session has neither answers nor feedback, unless Redis evicted the rest of an old one.
local former = ARGV[1] == '' and math.huge or math.max(lengths[0], tonumber(posts or 0))
if former > kept_turns then
  for _, entry in ipairs(redis.call('LRANGE', KEYS[5], 0, -1)) do
    if tonumber(string.match(entry, '"turn":(%d+)')) > kept_turns then
      redis.call('LREM', KEYS[5], 1, entry)
    end
  end
  for _, field in ipairs(redis.call('HKEYS', KEYS[6])) do
    if tonumber(string.match(field, '^%d+')) > kept_turns then
      redis.call('HDEL', KEYS[6], field)
    end
  end
end
local place = 23
for list = 0, 2 do
  local key = KEYS[2 + list]
  local kept, count = tonumber(ARGV[14 + 2 * list]), tonumber(ARGV[15 + 2 * list])
  local gone = lengths[list] - kept
  if kept > 0 and gone > 0 then redis.call('LTRIM', key, 0, kept - 1) end
  for item = place, place + count - 1 do redis.call('RPUSH', key, ARGV[item]) end
  -- Last, because a list that becomes empty cannot be created again while its slot migrates.
  if kept == 0 and gone > 0 then redis.call('LTRIM', key, gone, -1) end
  place = place + count
end
if ARGV[7] ~= '' then
  redis.call('RPUSH', KEYS[5], ARGV[7])
  local answers = redis.call('LRANGE', KEYS[5], -ARGV[8], -1)
  local kept, bytes = 1, #ARGV[7]
  while kept < #answers and bytes + #answers[#answers - kept] <= tonumber(ARGV[9]) do
    bytes, kept = bytes + #answers[#answers - kept], kept + 1
  end
  redis.call('LTRIM', KEYS[5], -kept, -1)
end
-- While its slot migrates, an empty list belongs to the other node, and EXPIRE fails: ignore it.
-- The vectors of another model expire if no replica uses them.
for key = 1, 6 do redis.pcall('EXPIRE', KEYS[key], ARGV[6]) end
return 1
