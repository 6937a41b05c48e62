-- ARGV: owner, '1' to count a try. The number of messages given back.
local messages = 0
for _, id in ipairs(redis.call('ZRANGE', P .. 'timed', 0, -1)) do
  if redis.call('HGET', P .. 'block:' .. id, 'owner') == ARGV[1] then
    messages = messages + free(id, ARGV[2] == '1')
  end
end
redis.call('HDEL', P .. 'settled', ARGV[1])
redis.call('HDEL', P .. 'claimed', ARGV[1])
return messages
