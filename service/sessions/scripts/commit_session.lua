-- Applies a whole change, and returns the version after it. Returns 0 and changes nothing if the
-- session changed since it was read. A new session has no version to go on from: ARGV has "" for it,
-- and the server's time in microseconds is larger than the versions of all sessions before.
-- KEYS: meta, posts, first, second (or other_first, other_second), answers, feedback; then, if
--   utterances changed, the lists that another model or release keeps of them.
-- ARGV: those named below, then the items to append.
local read, written, epoch, responder, fingerprint, seconds_to_live = unpack(ARGV, 1, 6)
local answer, most_answers, most_answer_bytes = unpack(ARGV, 7, 9)
local mine, rows, rows_of, unchanged = unpack(ARGV, 10, 13) -- mine: "" or "other_"
-- Of posts, first and encoded: how many items to keep, and how many to append.
local keep, append = {ARGV[14], ARGV[16], ARGV[18]}, {ARGV[15], ARGV[17], ARGV[19]}
local where, offer, most_offers, slots = unpack(ARGV, 20, 23) -- "": leave filter and slots, no offer
local place = 24 -- of the next item to append
for list = 1, 3 do keep[list], append[list] = tonumber(keep[list]), tonumber(append[list]) end
local meta, answers, feedback = KEYS[1], KEYS[5], KEYS[6]

local theirs = mine == '' and 'other_' or ''
local version, epoch_before, their_epoch, posts_before =
  unpack(redis.call('HMGET', meta, 'version', 'epoch', theirs .. 'epoch', 'posts'))
if (version or '') ~= read then return 0 end
posts_before = tonumber(posts_before or 0)
-- Redis may have evicted a list: no item may be appended after a gap.
local lengths = {}
for list = 1, 3 do
  lengths[list] = redis.call('LLEN', KEYS[1 + list])
  if lengths[list] < keep[list] then return 0 end
end
if written == '' then
  local now = redis.call('TIME')
  written = now[1] .. string.format('%06d', now[2])
end
-- A Redis without memory rejects a script at its first write if that is an HSET. It would let later
-- writes through.
redis.call('HSET', meta, 'version', written, 'epoch', epoch, 'responder', responder,
  'posts', keep[1] + append[1], mine .. 'fingerprint', fingerprint, mine .. 'epoch', epoch,
  mine .. 'rows', rows, mine .. 'rows_of', rows_of)
if where ~= '' then redis.call('HSET', meta, 'where', where) end
if slots ~= '' then redis.call('HSET', meta, 'slots', slots) end
for turn = keep[1] + 1, posts_before do
  redis.call('HDEL', meta, 'offered:' .. turn, 'choice:' .. turn)
end
if append[1] > 0 then
  local turn = keep[1] + append[1]
  local too_old = turn - most_offers
  redis.call('HDEL', meta, 'offered:' .. too_old, 'choice:' .. too_old)
  if offer ~= '' then redis.call('HSET', meta, 'offered:' .. turn, offer) end
end
-- The vectors of another model stay valid without those of the utterances that changed.
if #KEYS > 6 then
  if epoch_before == their_epoch then redis.call('HSET', meta, theirs .. 'epoch', epoch) end
  for list = 7, #KEYS do
    local gone = redis.call('LLEN', KEYS[list]) - unchanged
    if gone > 0 then redis.call('RPOP', KEYS[list], gone) end
  end
end
-- An undo removes the answers to the turns that it removes: their keys may be used again. A new
-- session has neither answers nor feedback, unless Redis evicted the rest of an old one.
local former = read == '' and math.huge or math.max(lengths[1], posts_before)
if former > keep[1] then
  for _, entry in ipairs(redis.call('LRANGE', answers, 0, -1)) do
    if tonumber(string.match(entry, '"turn":(%d+)')) > keep[1] then
      redis.call('LREM', answers, 1, entry)
    end
  end
  for _, field in ipairs(redis.call('HKEYS', feedback)) do
    if tonumber(string.match(field, '^%d+')) > keep[1] then redis.call('HDEL', feedback, field) end
  end
end
for list = 1, 3 do
  local key, gone = KEYS[1 + list], lengths[list] - keep[list]
  if keep[list] > 0 and gone > 0 then redis.call('LTRIM', key, 0, keep[list] - 1) end
  for item = place, place + append[list] - 1 do redis.call('RPUSH', key, ARGV[item]) end
  -- Last, because a list that becomes empty cannot be created again while its slot migrates.
  if keep[list] == 0 and gone > 0 then redis.call('LTRIM', key, gone, -1) end
  place = place + append[list]
end
if answer ~= '' then
  redis.call('RPUSH', answers, answer)
  local newest = redis.call('LRANGE', answers, -most_answers, -1)
  local kept, bytes = 1, #answer
  while kept < #newest and bytes + #newest[#newest - kept] <= tonumber(most_answer_bytes) do
    bytes, kept = bytes + #newest[#newest - kept], kept + 1
  end
  redis.call('LTRIM', answers, -kept, -1)
end
-- While its slot migrates, an empty list belongs to the other node, and EXPIRE fails: ignore it.
-- The vectors of another model expire if no replica uses them.
for key = 1, 6 do redis.pcall('EXPIRE', KEYS[key], seconds_to_live) end
return written
