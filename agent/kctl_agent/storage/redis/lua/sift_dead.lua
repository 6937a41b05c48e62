-- ARGV: tries from, tries to, offset from, offset to, text of the error, key, text of the value ('' for any), then ids.
-- Returns ids of dead letters that may match. Compressed blocks may hold any text: the fourth byte of a block is its
-- codec (storage/block.py). Redis serves no other client meanwhile, so after 4 MB all others count as matches.
local MOST_BYTES = 4194304
local tries_from, tries_to, offset_from, offset_to, traceback, key, value = unpack(ARGV, 1, 7)
local least, most = tonumber(tries_from) or 0, tonumber(tries_to) or math.huge
local first_most, last_least = tonumber(offset_to) or math.huge, tonumber(offset_from) or 0

local function holds(text, part)
  return part == '' or string.find(text, part, 1, true)
end

local found, read = {}, 0
for i = 8, #ARGV do
  local dead = P .. 'dead:' .. ARGV[i]
  local is_likely = true
  if read < MOST_BYTES then
    local tries, first, last = unpack(redis.call('HMGET', dead, 'tries', 'first', 'last'))
    is_likely = tries and tonumber(tries) >= least and tonumber(tries) <= most
      and tonumber(first) <= first_most and tonumber(last) >= last_least
    if is_likely and traceback ~= '' then
      local reason = redis.call('HGET', dead, 'error')
      read = read + #reason
      is_likely = holds(reason, traceback)
    end
    if is_likely and (key ~= '' or value ~= '') then
      local body = redis.call('HGET', dead, 'body')
      read = read + #body
      is_likely = string.byte(body, 4) ~= 0 or (holds(body, key) and holds(body, value))
    end
  end
  if is_likely then found[#found + 1] = ARGV[i] end
end
return found
