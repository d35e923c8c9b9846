-- ARGV: "owner:", lease in milliseconds, ":label"; and of a claim that waits its bell, perhaps empty, and '1' if
-- it certainly has no place in the queue yet.
-- Answers the fencing token, or {the holder's value, its remaining milliseconds}.
local value = redis.call('GET', KEYS[1])
if value and string.sub(value, 1, 33) == ARGV[1] then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return tonumber(string.match(value, '^%d+', 34))
end
value = value or promote(ARGV[1])
if not value then
  local token = next_token(redis.call('TIME'))
  if not token then return redis.error_reply('FOREIGN the counter is not one of a lock') end
  redis.call('SET', KEYS[1], ARGV[1] .. token .. ARGV[3], 'PX', ARGV[2])
  redis.call('SET', KEYS[2], token)
  return tonumber(token)
end
local left = redis.call('PTTL', KEYS[1])
-- Nobody queues behind what is not a lock.
if ARGV[4] and left >= 0 and string.match(value, '^%x+:%d+:') then
  local now = milliseconds(redis.call('TIME'))
  -- Rounded up, so that what is kept is never less than what was asked for.
  local deadline = now + ARGV[2] + 1
  local place = ARGV[1] .. string.format('%.0f', deadline) .. ':' .. ARGV[4] .. ARGV[3]
  local first = redis.call('LINDEX', KEYS[3], 0)
  if ARGV[5] == '1' and not (first and deadline_of(first) <= now) then
    redis.call('RPUSH', KEYS[3], place)
    if redis.call('PTTL', KEYS[3]) < deadline - now then redis.call('PEXPIRE', KEYS[3], deadline - now) end
    return {value, left}
  end
  local last, before, own = deadline, 0, nil
  for _, other in ipairs(redis.call('LRANGE', KEYS[3], 0, -1)) do
    local ends = deadline_of(other)
    if string.sub(other, 1, 33) == ARGV[1] then
      own = before
    elseif ends <= now then
      redis.call('LREM', KEYS[3], 1, other)
    else
      last = math.max(last, ends)
      if not own then before = before + 1 end
    end
  end
  if own then redis.call('LSET', KEYS[3], own, place) else redis.call('RPUSH', KEYS[3], place) end
  redis.call('PEXPIRE', KEYS[3], last - now)
end
return {value, left}
