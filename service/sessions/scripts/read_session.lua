-- Reads a session in one round trip, with the vectors of one model.
-- KEYS: meta, posts, first, second, answers.
-- ARGV: fingerprint, bytes of a row, most newest rows kept, 1 to read encoded, digest of the
--   idempotency key or "", other_first, other_second. The last two are keys, but not among KEYS: a
--   cluster would reject the script while a slot moves if a key is missing, as these mostly are.
local session = redis.call('HMGET', KEYS[1], 'version', 'epoch', 'responder', 'posts', 'fingerprint',
  'where', 'other_fingerprint', 'other_epoch', 'slots')
session[10] = redis.call('HGET', KEYS[1], 'choice:' .. (session[4] or 0)) -- of the last turn
local answer = false
if ARGV[5] ~= '' and session[1] then
  for _, entry in ipairs(redis.call('LRANGE', KEYS[5], 0, -1)) do
    if string.sub(entry, 1, #ARGV[5]) == ARGV[5] then answer = entry end
  end
end
local prefix, first, second = '', KEYS[3], KEYS[4]
local found = session[5] == ARGV[1]
-- A model without vectors gets the free slot, or the one that was unused for longer.
if not found and session[1] and (session[7] == ARGV[1] or
    redis.call('PTTL', ARGV[7]) < redis.call('PTTL', KEYS[4])) then
  prefix, first, second = 'other_', ARGV[6], ARGV[7]
  found = session[7] == ARGV[1] and session[8] == session[2]
end
local posts = redis.call('LRANGE', KEYS[2], 0, -1)
local read = {session, prefix, redis.call('PTTL', KEYS[1]), answer, posts}
if not found then return read end
local complete = redis.call('LLEN', second)
local rows = redis.call('HMGET', KEYS[1], prefix .. 'rows', prefix .. 'rows_of')
-- Rows of other utterances, or of a release that keeps another number of them, are computed again,
-- from the vectors.
local bytes = ARGV[2] * (1 + math.min(complete, ARGV[3]))
if rows[2] ~= session[2] .. ':' .. complete or #(rows[1] or '') ~= bytes then rows[1] = false end
local encoded = {}
if ARGV[4] == '1' or not rows[1] then encoded = redis.call('LRANGE', second, 0, -1) end
for _, part in ipairs({redis.call('LRANGE', first, 0, -1), encoded, complete, rows[1]}) do
  table.insert(read, part)
end
return read
