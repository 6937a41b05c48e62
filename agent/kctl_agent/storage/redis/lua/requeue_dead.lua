-- ARGV: token, how many ids, the ids of dead letters, then tp, topic_id, first, last, count, body of each block made of
-- them. Returns how many were requeued; -1 if one no longer exists, and then nothing is changed.
return once(ARGV[1], function()
  local ids = tonumber(ARGV[2])
  for i = 3, ids + 2 do
    if redis.call('EXISTS', P .. 'dead:' .. ARGV[i]) == 0 then return -1 end
  end
  for i = 3, ids + 2 do remove_dead_letter(ARGV[i]) end
  local machine = machine_time()
  for i = ids + 3, #ARGV, 6 do
    local id = add(ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], ARGV[i + 4], #ARGV[i + 5], machine)
    redis.call('SET', P .. 'body:' .. id, ARGV[i + 5])
  end
  return ids
end)
