-- Returns {counts as a list of name, value; then tp, age in milliseconds of its oldest block that is not dead, ...}
local ages, machine = {}, machine_time()
for _, tp in ipairs(redis.call('SMEMBERS', P .. 'partitions')) do
  local id = redis.call('ZRANGE', P .. 'line:' .. tp, 0, 0)[1]
  local since = id and redis.call('HGET', P .. 'block:' .. id, 'since')
  if since then
    ages[#ages + 1] = tp
    ages[#ages + 1] = text(math.max(machine - since, 0))
  end
end
return {redis.call('HGETALL', P .. 'counts'), ages}
