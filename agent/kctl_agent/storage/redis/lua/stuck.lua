-- ARGV: topic, partition, offset_from, offset_to ('': any), age of leases in milliseconds ('': those that ran out).
-- The number of messages put back.
local now, messages = clock(10000), 0
for _, id in ipairs(redis.call('ZRANGE', P .. 'timed', 0, -1)) do
  local tp, first, last, state, leased =
    unpack(redis.call('HMGET', P .. 'block:' .. id, 'tp', 'first', 'last', 'state', 'leased'))
  if tp and selects(ARGV[1], ARGV[2], ARGV[3], ARGV[4], tp, first, last) then
    local is_over = tonumber(redis.call('ZSCORE', P .. 'timed', id)) <= now
    if state == 'delayed' or is_over or (ARGV[5] ~= '' and tonumber(leased) <= now - ARGV[5]) then
      messages = messages + free(id, state == 'processing')
    end
  end
end
return messages
