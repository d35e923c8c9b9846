-- KEYS: the lock, its counter. ARGV: "owner:", lease in milliseconds, ":label".
-- Answers the fencing token, or {the holder's value, its remaining milliseconds}.
local value = redis.call('GET', KEYS[1])
if not value then
  -- The larger of counter and clock, so that tokens grow even if the counter is lost with the data.
  local time = redis.call('TIME')
  local token = time[1] * 1000000 + time[2]
  local last = tonumber(redis.call('GET', KEYS[2]) or 0)
  if not last or last >= 9007199254740991 then
    return redis.error_reply('FOREIGN the counter is not one of a lock')
  end
  if last >= token then token = last + 1 end
  local digits = string.format('%.0f', token)
  redis.call('SET', KEYS[1], ARGV[1] .. digits .. ARGV[3], 'NX', 'PX', ARGV[2])
  redis.call('SET', KEYS[2], digits)
  return token
end
if string.sub(value, 1, 33) == ARGV[1] then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return tonumber(string.match(value, '^%d+', 34))
end
return {value, redis.call('PTTL', KEYS[1])}
