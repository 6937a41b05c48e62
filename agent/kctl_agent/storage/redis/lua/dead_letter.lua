-- ARGV: token, topic_id, then tp, offset, tries, error, cause, body of each message.
return once(ARGV[1], function()
  local machine = machine_time()
  for i = 3, #ARGV, 6 do
    local tp, offset, tries, reason, cause, body = unpack(ARGV, i, i + 5)
    add_dead_letter(tp, ARGV[2], offset, offset, 1, tries, reason, cause, '0', body, machine)
  end
  return 1
end)
