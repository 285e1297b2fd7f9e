-- Keeps a feedback event of an offered candidate, unless the session has it already. `meta` keeps the
-- last choice of a turn, because the hash `feedback` has no order.
-- KEYS: meta, feedback. ARGV: turn, event, candidate, text or "", most events of a session.
-- Returns the outcome, with facts: "session", "turn" (turns of the session), "offer" or
--   "candidate" that is missing; "full"; "kept" or "new": rank and text, version of the session, and
--   pool and model of the offer, "" if that is too old.
local session = redis.call('HMGET', KEYS[1], 'version', 'posts', 'offered:' .. ARGV[1])
if not session[1] then return {'session'} end
local field = ARGV[1] .. ' ' .. ARGV[2] .. ' ' .. ARGV[3]
local kept = redis.call('HGET', KEYS[2], field)
local offer = session[3] and cjson.decode(session[3]) or {'', ''}
if kept then return {'kept', kept, session[1], offer[1], offer[2]} end
if tonumber(ARGV[1]) > tonumber(session[2] or 0) then return {'turn', session[2] or '0'} end
if not session[3] then return {'offer'} end
local rank = 0
for place = 3, #offer do
  if offer[place] == ARGV[3] then rank = place - 2 end
end
if rank == 0 then return {'candidate'} end
if redis.call('HLEN', KEYS[2]) >= tonumber(ARGV[5]) then return {'full'} end
redis.call('HSET', KEYS[2], field, rank .. ' ' .. ARGV[4])
if ARGV[2] == 'chosen' or ARGV[2] == 'edited' then
  redis.call('HSET', KEYS[1], 'choice:' .. ARGV[1], ARGV[3])
end
redis.call('PEXPIRE', KEYS[2], redis.call('PTTL', KEYS[1]))
return {'new', rank .. ' ' .. ARGV[4], session[1], offer[1], offer[2]}
