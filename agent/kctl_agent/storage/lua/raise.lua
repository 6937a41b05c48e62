-- ARGV: field of marks ('next' or 'committed'), then tp, value. Forward only, and only in marks that exist.
local field = ARGV[1]
for i = 2, #ARGV, 2 do
  local mark = P .. 'mark:' .. ARGV[i]
  if redis.call('EXISTS', mark) == 1 then
    local before = redis.call('HGET', mark, field)
    if not before or before == '' or tonumber(ARGV[i + 1]) > tonumber(before) then
      redis.call('HSET', mark, field, ARGV[i + 1])
    end
  end
end
