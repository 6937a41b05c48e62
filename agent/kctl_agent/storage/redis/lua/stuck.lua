-- ARGV: token, topic, partition, offset_from, offset_to ('': any), age of leases in milliseconds ('': expired ones).
-- Returns the number of requeued messages.
return once(ARGV[1], function()
  local now, messages = clock(10000), 0
  local _, topic, partition, offset_from, offset_to, age = unpack(ARGV)
  for _, id in ipairs(redis.call('ZRANGE', P .. 'timed', 0, -1)) do
    local tp, first, last, state, leased =
      unpack(redis.call('HMGET', P .. 'block:' .. id, 'tp', 'first', 'last', 'state', 'leased'))
    if tp and selects(topic, partition, offset_from, offset_to, tp, first, last) then
      local is_over = tonumber(redis.call('ZSCORE', P .. 'timed', id)) <= now
      if state == 'delayed' or is_over or (age ~= '' and tonumber(leased) <= now - age) then
        messages = messages + free(id, state == 'processing')
      end
    end
  end
  return messages
end)
