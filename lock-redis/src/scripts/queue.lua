-- In front of the scripts that decide who is next. KEYS: the lock, its counter, its queue.
-- A place in the queue is "owner:deadline:bell:label": until when (in milliseconds of this server's clock) its
-- claim is kept, and the end of the channel on which its connection listens, if it does.

local function milliseconds(time)
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

local function deadline_of(place)
  return tonumber(string.match(place, '^%x+:(%d+)')) or 0
end

-- The next token, in digits: the larger of counter and clock, so that tokens grow even if the counter is
-- lost with the data. Nothing if the counter is not one of a lock.
local function next_token(time)
  local token = time[1] * 1000000 + time[2]
  local last = tonumber(redis.call('GET', KEYS[2]) or 0)
  if not last or last >= 9007199254740991 then return nil end
  if last >= token then token = last + 1 end
  return string.format('%.0f', token)
end

-- Hands the lock to the first in the queue that lives, with what is left of its lease, and tells its
-- connection. Answers the lock's value, or nothing if nobody stands before the owner `me`.
local function promote(me)
  local index = 0
  local place = redis.call('LINDEX', KEYS[3], 0)
  local time = place and redis.call('TIME')
  -- The first write. A server that refuses to write publishes all the same: so it refuses before anybody is told.
  if place then redis.call('DEL', KEYS[1]) end
  while place do
    local owner, deadline, bell, label = string.match(place, '^(%x+:)(%d+):(%x*)(:.*)$')
    local left = (tonumber(deadline) or 0) - milliseconds(time)
    if left <= 0 or owner == me then
      redis.call('LREM', KEYS[3], 1, place)
      if left > 0 then return nil end
    else
      local token = next_token(time)
      if not token then return nil end
      -- Nobody listens there any more: a claim whose connection is lost must ask for itself. A user who may
      -- not publish may still release: then the next one finds out when it asks.
      local heard = bell == '' or redis.pcall('PUBLISH', string.match(KEYS[1], '^[^{]*') .. 'wake:' .. bell,
        token .. ':' .. left .. ':' .. owner .. KEYS[1])
      if heard ~= 0 then
        redis.call('LREM', KEYS[3], 1, place)
        redis.call('SET', KEYS[1], owner .. token .. label, 'PX', left)
        redis.call('SET', KEYS[2], token)
        return owner .. token .. label
      end
      index = index + 1
    end
    place = redis.call('LINDEX', KEYS[3], index)
  end
end

