-- Deletes a session; returns its version, "0" if that was lost, or nothing if there was no session.
-- KEYS: meta, and all other parts.
local version = redis.call('HGET', KEYS[1], 'version')
if redis.call('UNLINK', unpack(KEYS)) > 0 then return version or '0' end
