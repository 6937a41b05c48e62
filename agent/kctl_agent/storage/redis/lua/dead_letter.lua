-- ARGV: token, topic_id, then tp, version, start and end of an advance, or '' four times; then tp, offset, tries, error,
-- cause, body of each message. Returns {} if done, else {topic_id, next, version} of the stored offset, if it differs.
return once(ARGV[1], function()
  if ARGV[3] ~= '' then
    local stored = read_stored_offset(ARGV[3])
    if stored[3] ~= ARGV[4] or stored[2] ~= ARGV[5] then return stored end
    redis.call('HSET', P .. 'offset:' .. ARGV[3], 'next', ARGV[6])
  end
  local machine = machine_time()
  for i = 7, #ARGV, 6 do
    local tp, offset, tries, reason, cause, body = unpack(ARGV, i, i + 5)
    add_dead_letter(tp, ARGV[2], offset, offset, 1, tries, reason, cause, '0', body, machine)
  end
  return {}
end)
