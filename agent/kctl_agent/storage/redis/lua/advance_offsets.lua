-- ARGV: tp, version that was planned on, start, end; and so on. Forward only, all or nothing.
-- Returns {} if done, else {topic_id, next, version} of each stored offset, for the caller to judge.
local found, is_allowed = {}, true
for i = 1, #ARGV, 4 do
  local stored = read_stored_offset(ARGV[i])
  found[#found + 1] = stored
  is_allowed = is_allowed and stored[3] == ARGV[i + 1] and tonumber(ARGV[i + 2]) <= tonumber(stored[2])
end
if not is_allowed then return found end
for i = 1, #ARGV, 4 do
  if tonumber(ARGV[i + 3]) > tonumber(found[(i + 3) / 4][2]) then
    redis.call('HSET', P .. 'offset:' .. ARGV[i], 'next', ARGV[i + 3])
  end
end
return {}
