-- ARGV: token of this put, tp, topic_id, start, end, the stored offset's version that was planned on, the stored offset
--       that the blocks were cut at ('': none lie below it), then first, last, count, NAME of sent:NAME of each block.
-- Blocks and stored offset, or neither. {}: done, also when this put is repeated because its reply was lost. Else
-- {topic_id, next, version} of the stored offset, for the caller to judge or cut anew.
local token, tp, topic_id, start, finish, version, cut_at = unpack(ARGV, 1, 7)
local stored = read_stored_offset(tp)
local following = stored[2]

local function forget()
  for i = 11, #ARGV, 4 do redis.call('DEL', P .. 'sent:' .. ARGV[i]) end
end

if redis.call('HGET', P .. 'offset:' .. tp, 'put') == token then
  forget()
  return {}
end
local first = ARGV[8]
local is_below = first and following ~= '' and tonumber(first) < tonumber(following)
if stored[3] ~= version or tonumber(start) > tonumber(following) or is_below
  or (cut_at ~= '' and cut_at ~= following) then
  forget()
  return stored
end
local _, machine = clock(0)
for i = 8, #ARGV, 4 do
  local sent = P .. 'sent:' .. ARGV[i + 3]
  local id = add(tp, topic_id, ARGV[i], ARGV[i + 1], ARGV[i + 2], redis.call('STRLEN', sent), machine)
  redis.call('RENAME', sent, P .. 'body:' .. id)
  redis.call('PERSIST', P .. 'body:' .. id)
end
local reached = tonumber(finish) > tonumber(following) and finish or following
redis.call('HSET', P .. 'offset:' .. tp, 'next', reached, 'put', token)
return {}
