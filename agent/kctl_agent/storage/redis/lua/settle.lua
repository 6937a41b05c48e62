-- ARGV: id, token, owner, the outcome in words, 'gone' or 'again', delay in milliseconds,
--       first, last, count, body of the block to retry (body '': unchanged), then first, last, count, tries,
--       error, cause, '1' for damaged, body of each dead letter.
-- Returns 1 if done, also by a first try whose reply was lost; 0 if the lease is lost, and nothing was changed.
local id, token, owner, outcome, fate, delay = unpack(ARGV, 1, 6)
local block = P .. 'block:' .. id
local reply = id .. ' ' .. token .. ' ' .. outcome
if redis.call('HGET', block, 'token') ~= token then
  return redis.call('HGET', P .. 'settled', owner) == reply and 1 or 0
end
redis.call('HSET', P .. 'settled', owner, reply)
local tp, topic_id = unpack(redis.call('HMGET', block, 'tp', 'topic_id'))
if fate == 'again' then
  local first, last, messages, body = unpack(ARGV, 7, 10)
  count(tp, 'processing', -redis.call('HGET', block, 'count'), 0)
  count(tp, 'delayed', messages, 0)
  if body ~= '' then
    redis.call('HINCRBY', P .. 'counts', tp .. ' bytes', #body - size_of(id))
    redis.call('HSET', block, 'first', first, 'last', last, 'count', messages)
    redis.call('SET', P .. 'body:' .. id, body)
  end
  redis.call('HDEL', block, 'owner', 'token', 'leased')
  redis.call('HSET', block, 'state', 'delayed')
  redis.call('HINCRBY', block, 'tries', 1)
  redis.call('ZADD', P .. 'timed', clock(10000) + tonumber(delay), id)
else
  remove(id)
end
local machine = machine_time()
for i = 11, #ARGV, 8 do
  local first, last, messages, tries, reason, cause, damaged, body = unpack(ARGV, i, i + 7)
  add_dead_letter(tp, topic_id, first, last, messages, tries, reason, cause, damaged, body, machine)
end
return 1
