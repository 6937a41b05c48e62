-- ARGV: the layout of this release. Brings a storage of layout 1 to 3 up to it, all or nothing; a new one gets it. The
-- layout as it is now.
local function is_older(layout) return layout == '1' or layout == '2' or layout == '3' end

local layout = redis.call('GET', P .. 'layout')
if not layout or is_older(layout) then -- without one: emptied under processes of an earlier commit, which went on
  for _, tp in ipairs(redis.call('SMEMBERS', P .. 'partitions')) do
    local older = P .. 'mark:' .. tp -- the key of a stored offset before layout 4
    if redis.call('EXISTS', older) == 1 then redis.call('RENAME', older, P .. 'offset:' .. tp) end
  end
end
if not layout or is_older(layout) then redis.call('SET', P .. 'layout', ARGV[1]) end
return redis.call('GET', P .. 'layout')
