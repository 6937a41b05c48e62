-- ARGV: token, topic_id, error, then tp, offset, tries, body of each message that never was in the storage.
return once(ARGV[1], function()
  local machine = machine_time()
  for i = 4, #ARGV, 4 do
    add_dead_letter(ARGV[i], ARGV[2], ARGV[i + 1], ARGV[i + 1], 1, ARGV[i + 2], ARGV[3], '0', ARGV[i + 3], machine)
  end
  return 1
end)
