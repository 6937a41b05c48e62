-- ARGV: owner, token, limit, lease in milliseconds, '1' for ordered, most bytes ('': any number; at least one block).
-- Returns {id, tries, tp, topic_id, first, last, count, body} of each leased block. A claim that is repeated because
-- its reply was lost gets the same blocks, which would otherwise wait for their lease to expire.
local owner, token, limit, lease, ordered = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5] == '1'
local room = tonumber(ARGV[6] or '') or math.huge
local MOST_WOKEN = 1000 -- a script must be short: the next claim wakes the rest
local READ_AHEAD = 16
local leased = {}

local function read(id)
  local block = P .. 'block:' .. id
  local found = redis.call('HMGET', block, 'tries', 'tp', 'topic_id', 'first', 'last', 'count')
  found[7] = redis.call('GET', P .. 'body:' .. id)
  return found
end

local last_reply = redis.call('HGET', P .. 'claimed', owner) or ''
if string.sub(last_reply, 1, #token + 1) == token .. ' ' then
  for id in string.gmatch(string.sub(last_reply, #token + 2), '%d+') do
    local block = P .. 'block:' .. id
    if redis.call('HGET', block, 'token') == token then
      leased[#leased + 1] = {id, unpack(read(id))}
    end
  end
  return leased
end

local now = tick(lease / 3)
for _, id in ipairs(redis.call('ZRANGEBYSCORE', P .. 'timed', '-inf', now, 'LIMIT', 0, MOST_WOKEN)) do
  free(id, redis.call('HGET', P .. 'block:' .. id, 'state') == 'processing')
end

-- If the block would be too large, does nothing and ends the claim.
local function take(id)
  local block = P .. 'block:' .. id
  room = room - size_of(id)
  if #leased > 0 and room < 0 then
    limit = 0
    return
  end
  local found = read(id)
  redis.call('ZREM', P .. 'ready', id)
  if not found[2] then return end
  redis.call('HSET', block, 'state', 'processing', 'owner', owner, 'token', token, 'leased', text(now))
  redis.call('ZADD', P .. 'timed', now + lease, id)
  count(found[2], 'pending', -found[6], 0)
  count(found[2], 'processing', found[6], 0)
  leased[#leased + 1] = {id, unpack(found)}
  limit = limit - found[6]
end

if ordered then
  local heads = {}
  for _, tp in ipairs(redis.call('SMEMBERS', P .. 'partitions')) do
    local id = redis.call('ZRANGE', P .. 'line:' .. tp, 0, 0)[1]
    if id and redis.call('HGET', P .. 'block:' .. id, 'state') == 'pending' then heads[#heads + 1] = id end
  end
  table.sort(heads, function(a, b) return tonumber(a) < tonumber(b) end)
  for _, id in ipairs(heads) do
    if limit > 0 then take(id) end
  end
else
  while limit > 0 do
    local ids = redis.call('ZRANGE', P .. 'ready', 0, READ_AHEAD - 1)
    if #ids == 0 then break end
    for _, id in ipairs(ids) do
      if limit > 0 then take(id) end
    end
  end
end
if #leased > 0 then
  local ids = {}
  for i, row in ipairs(leased) do ids[i] = row[1] end
  redis.call('HSET', P .. 'claimed', owner, token .. ' ' .. table.concat(ids, ' '))
end
return leased
