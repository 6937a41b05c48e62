-- ARGV: token, tp, id to continue after, blocks to read, offset_from, offset_to, age in milliseconds ('' each: any).
-- Removes pending messages of a partition. Returns {messages removed, the last id read}; the id is '' at the end.
return once(ARGV[1], function()
  local _, tp, after, most, offset_from, offset_to, age = unpack(ARGV)
  local ids = redis.call('ZRANGEBYSCORE', P .. 'line:' .. tp, '(' .. after, '+inf', 'LIMIT', 0, most)
  local machine, messages = machine_time(), 0
  for _, id in ipairs(ids) do
    local first, last, state, since = unpack(redis.call('HMGET', P .. 'block:' .. id, 'first', 'last', 'state', 'since'))
    if first and state ~= 'processing' and selects('', '', offset_from, offset_to, tp, first, last)
      and (age == '' or tonumber(since) <= machine - age) then
      messages = messages + remove(id)
    end
  end
  return {messages, ids[#ids] or ''}
end)
