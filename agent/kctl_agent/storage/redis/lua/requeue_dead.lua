-- ARGV: how many ids, the ids of dead letters, then tp, topic_id, first, last, count, body of each block made of them.
-- The number of messages that are dead no more; -1, and nothing is changed, when one of the dead letters is gone already.
local ids, messages = tonumber(ARGV[1]), 0
for i = 2, ids + 1 do
  if redis.call('EXISTS', P .. 'dead:' .. ARGV[i]) == 0 then return -1 end
end
for i = 2, ids + 1 do
  local dead_letter = P .. 'dead:' .. ARGV[i]
  local tp, its = unpack(redis.call('HMGET', dead_letter, 'tp', 'count'))
  count(tp, 'dead', -its, -redis.call('HSTRLEN', dead_letter, 'body'))
  redis.call('DEL', dead_letter)
  redis.call('ZREM', P .. 'dead', ARGV[i])
  messages = messages + its
end
local machine = machine_time()
for i = ids + 2, #ARGV, 6 do
  local id = add(ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], ARGV[i + 4], #ARGV[i + 5], machine)
  redis.call('SET', P .. 'body:' .. id, ARGV[i + 5])
end
return messages
