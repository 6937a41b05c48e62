-- ARGV: tp, topic_id, start, end, committed ('': keep), mark that the blocks were cut at ('': none lie below it),
--       then first, last, count, NAME of sent:NAME of each block.
-- Blocks and mark, or neither. {'ok'}, {'missing'}, or {'mark', next, topic_id} when the caller has to judge or cut anew.
local tp, topic_id, start, finish, committed, cut_at = unpack(ARGV, 1, 6)
local mark = P .. 'mark:' .. tp
local following, its_topic_id = unpack(redis.call('HMGET', mark, 'next', 'topic_id'))

local function forget()
  for i = 10, #ARGV, 4 do redis.call('DEL', P .. 'sent:' .. ARGV[i]) end
end

if not following then
  forget()
  return {'missing'}
end
local first = ARGV[7]
local is_below = first and tonumber(first) < tonumber(following)
if its_topic_id ~= topic_id or tonumber(start) > tonumber(following) or is_below
  or (cut_at ~= '' and cut_at ~= following) then
  forget()
  return {'mark', following, its_topic_id}
end
local _, machine = clock(0)
for i = 7, #ARGV, 4 do
  local sent = P .. 'sent:' .. ARGV[i + 3]
  local id = add(tp, topic_id, ARGV[i], ARGV[i + 1], ARGV[i + 2], redis.call('STRLEN', sent), machine)
  redis.call('RENAME', sent, P .. 'body:' .. id)
  redis.call('PERSIST', P .. 'body:' .. id)
end
if tonumber(finish) > tonumber(following) then redis.call('HSET', mark, 'next', finish) end
if committed ~= '' then redis.call('HSET', mark, 'committed', committed) end
return {'ok'}
