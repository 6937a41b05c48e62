-- ARGV: tp, next and version as seen ('': none), then topic_id, next, version to write; and so on.
-- All or nothing. Returns {} if written, or written by a first try whose reply was lost. Else {topic_id, next, version}
-- of each stored offset.
local found, is_seen = {}, true
for i = 1, #ARGV, 6 do
  local stored = read_stored_offset(ARGV[i])
  found[#found + 1] = stored
  local is_there = stored[1] == ARGV[i + 3] and stored[2] == ARGV[i + 4] and stored[3] == ARGV[i + 5]
  is_seen = is_seen and (is_there or (stored[2] == ARGV[i + 1] and stored[3] == ARGV[i + 2]))
end
if not is_seen then return found end
for i = 1, #ARGV, 6 do
  redis.call('HSET', P .. 'offset:' .. ARGV[i], 'topic_id', ARGV[i + 3], 'next', ARGV[i + 4], 'version', ARGV[i + 5])
  redis.call('SADD', P .. 'partitions', ARGV[i])
end
return {}
