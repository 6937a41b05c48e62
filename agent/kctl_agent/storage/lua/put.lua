-- ARGV: tp, topic_id, start, end, the mark's version that was planned on, mark that the blocks were cut at ('': none lie
--       below it), then first, last, count, NAME of sent:NAME of each block.
-- Blocks and mark, or neither. {}: done. Else {topic_id, next, version} of the mark, for the caller to judge or cut anew.
local tp, topic_id, start, finish, version, cut_at = unpack(ARGV, 1, 6)
local mark = read_mark(tp)
local following = mark[2]

local function forget()
  for i = 10, #ARGV, 4 do redis.call('DEL', P .. 'sent:' .. ARGV[i]) end
end

local first = ARGV[7]
local is_below = first and following ~= '' and tonumber(first) < tonumber(following)
if mark[3] ~= version or tonumber(start) > tonumber(following) or is_below
  or (cut_at ~= '' and cut_at ~= following) then
  forget()
  return mark
end
local _, machine = clock(0)
for i = 7, #ARGV, 4 do
  local sent = P .. 'sent:' .. ARGV[i + 3]
  local id = add(tp, topic_id, ARGV[i], ARGV[i + 1], ARGV[i + 2], redis.call('STRLEN', sent), machine)
  redis.call('RENAME', sent, P .. 'body:' .. id)
  redis.call('PERSIST', P .. 'body:' .. id)
end
if tonumber(finish) > tonumber(following) then redis.call('HSET', P .. 'mark:' .. tp, 'next', finish) end
return {}
