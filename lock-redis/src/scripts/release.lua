-- ARGV: "owner:". Answers 1 if this owner held the lock or waited for it, else 0.
local value = redis.call('GET', KEYS[1])
if value and string.sub(value, 1, 33) == ARGV[1] then
  if not promote() then redis.call('DEL', KEYS[1]) end
  return 1
end
for _, place in ipairs(redis.call('LRANGE', KEYS[3], 0, -1)) do
  if string.sub(place, 1, 33) == ARGV[1] then
    redis.call('LREM', KEYS[3], 1, place)
    if not value then promote() end
    return 1
  end
end
return 0
