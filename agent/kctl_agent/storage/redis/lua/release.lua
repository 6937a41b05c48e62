-- ARGV: token, owner, '1' to count a try. Returns the number of released messages.
return once(ARGV[1], function()
  local messages = 0
  for _, id in ipairs(redis.call('ZRANGE', P .. 'timed', 0, -1)) do
    if redis.call('HGET', P .. 'block:' .. id, 'owner') == ARGV[2] then
      messages = messages + free(id, ARGV[3] == '1')
    end
  end
  redis.call('HDEL', P .. 'settled', ARGV[2])
  redis.call('HDEL', P .. 'claimed', ARGV[2])
  return messages
end)
