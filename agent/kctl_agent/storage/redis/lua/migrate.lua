-- ARGV: the layout of this release. Brings a storage of an older layout up to it, all or nothing; a new one gets it. The
-- layout as it is now.
local layout = redis.call('GET', P .. 'layout')
-- Without one: emptied under processes of an earlier commit, which went on.
if not layout or (string.match(layout, '^%d+$') and tonumber(layout) < tonumber(ARGV[1])) then
  for _, tp in ipairs(redis.call('SMEMBERS', P .. 'partitions')) do
    local older = P .. 'mark:' .. tp -- the key of a stored offset before layout 4
    if redis.call('EXISTS', older) == 1 then redis.call('RENAME', older, P .. 'offset:' .. tp) end
  end
  redis.call('SET', P .. 'layout', ARGV[1])
end
return redis.call('GET', P .. 'layout')
