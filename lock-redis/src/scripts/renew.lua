-- KEYS: the lock. ARGV: "owner:", lease in milliseconds. Answers 1 if this owner holds it, else 0.
local value = redis.call('GET', KEYS[1])
if value and string.sub(value, 1, 33) == ARGV[1] then
  return redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return 0
