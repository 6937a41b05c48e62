-- ARGV: id and cause of dead letters of before layout 6, which had no index by what they died of, and before layout 5 no
-- `dead_at`. May be repeated.
for i = 1, #ARGV, 2 do
  local older = P .. 'dead:' .. ARGV[i]
  local tp, topic_id, first, last, at = unpack(redis.call('HMGET', older, 'tp', 'topic_id', 'first', 'last', 'at'))
  redis.call('ZREM', P .. 'dead', ARGV[i])
  if tp then
    local id = string.format('%016.0f', ARGV[i])
    redis.call('HSET', older, 'cause', ARGV[i + 1])
    redis.call('RENAME', older, P .. 'dead:' .. id)
    redis.call('HSET', P .. 'dead_at', place_of(tp, topic_id, first, last), id)
    index_dead_letter(id, tp, ARGV[i + 1], at)
  end
end
