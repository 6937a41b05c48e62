-- ARGV: token of this put, then for each chunk, of a partition each: tp, topic_id, start, end, the stored offset's
--       version that was planned on, the stored offset that the blocks were cut at ('': no messages lie below it), the
--       number of blocks, and first, last, count, NAME of sent:NAME of each.
-- Stores blocks and stored offsets of all chunks, or nothing. Returns {} if done, also by a first try whose reply was
-- lost. Else {topic_id, next, version} of each stored offset, for the caller to judge or to cut again.
local token, chunks, names, found, at = ARGV[1], {}, {}, {}, 2
while at <= #ARGV do
  local tp, topic_id, start, finish, version, cut_at, blocks = unpack(ARGV, at, at + 6)
  local chunk = {tp = tp, topic_id = topic_id, finish = finish, from = at + 7, to = at + 6 + 4 * blocks}
  local stored = read_stored_offset(tp)
  local first = tonumber(blocks) > 0 and ARGV[at + 7]
  chunk.following = stored[2]
  chunk.is_refused = stored[3] ~= version or tonumber(start) > tonumber(stored[2])
    or (first and tonumber(first) < tonumber(stored[2])) or (cut_at ~= '' and cut_at ~= stored[2])
  for i = chunk.from + 3, chunk.to, 4 do names[#names + 1] = P .. 'sent:' .. ARGV[i] end
  chunks[#chunks + 1], found[#found + 1] = chunk, stored
  at = chunk.to + 1
end

local function forget(reply)
  for _, name in ipairs(names) do redis.call('DEL', name) end
  return reply
end

if redis.call('HGET', P .. 'offset:' .. chunks[1].tp, 'put') == token then return forget({}) end
for _, chunk in ipairs(chunks) do
  if chunk.is_refused then return forget(found) end
end
local _, machine = clock(0)
for _, chunk in ipairs(chunks) do
  for i = chunk.from, chunk.to, 4 do
    local sent = P .. 'sent:' .. ARGV[i + 3]
    local id = add(chunk.tp, chunk.topic_id, ARGV[i], ARGV[i + 1], ARGV[i + 2], redis.call('STRLEN', sent), machine)
    redis.call('RENAME', sent, P .. 'body:' .. id)
    redis.call('PERSIST', P .. 'body:' .. id)
  end
  local reached = tonumber(chunk.finish) > tonumber(chunk.following) and chunk.finish or chunk.following
  redis.call('HSET', P .. 'offset:' .. chunk.tp, 'next', reached, 'put', token)
end
return {}
