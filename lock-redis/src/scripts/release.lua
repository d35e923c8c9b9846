-- KEYS: the lock. ARGV: "owner:", the wake channel. Answers 1 if this owner held it, else 0.
local value = redis.call('GET', KEYS[1])
if value and string.sub(value, 1, 33) == ARGV[1] then
  redis.call('DEL', KEYS[1])
  -- A user who may not publish may still release: the others find out when they ask again.
  redis.pcall('PUBLISH', ARGV[2], '')
  return 1
end
return 0
