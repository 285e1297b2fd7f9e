-- Appends the vector of an utterance in the role [B1], which the idle encoder computed after the
-- answer, unless the utterance changed since (the session's epoch) or has its vector.
-- KEYS: meta, first or other_first. ARGV: "" or "other_", fingerprint, epoch, place, vector.
local of = redis.call('HMGET', KEYS[1], ARGV[1] .. 'fingerprint', ARGV[1] .. 'epoch')
if of[1] ~= ARGV[2] or of[2] ~= ARGV[3] then return 0 end
if redis.call('LLEN', KEYS[2]) ~= tonumber(ARGV[4]) then return 0 end
redis.call('RPUSH', KEYS[2], ARGV[5])
redis.call('PEXPIRE', KEYS[2], redis.call('PTTL', KEYS[1]))
return 1
