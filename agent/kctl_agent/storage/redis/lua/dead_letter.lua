-- ARGV: token, topic_id, then tp, offset, tries, error, body of each message.
return once(ARGV[1], function()
  local machine = machine_time()
  for i = 3, #ARGV, 5 do
    local tp, offset, tries, reason, body = unpack(ARGV, i, i + 4)
    add_dead_letter(tp, ARGV[2], offset, offset, 1, tries, reason, '0', body, machine)
  end
  return 1
end)
