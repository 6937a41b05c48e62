-- ARGV: topic_id, error, then tp, offset, tries, body of each message that never was in the storage.
local machine = machine_time()
for i = 3, #ARGV, 4 do
  add_dead_letter(ARGV[i], ARGV[1], ARGV[i + 1], ARGV[i + 1], 1, ARGV[i + 2], ARGV[2], '0', ARGV[i + 3], machine)
end
