-- ARGV: group, cluster_id ('': unknown), id for a storage that has none, '1' to take it over.
-- Returns {id, group, cluster_id} of the storage; the caller compares.
local group, cluster_id, id, take_over = unpack(ARGV)
local key = P .. 'storage'
local is_new = not redis.call('HGET', key, 'id')
if is_new then redis.call('HSET', key, 'id', id) end
local before = redis.call('HGET', key, 'cluster_id') or ''
if is_new or take_over == '1' then
  if cluster_id == '' then cluster_id = before end
  redis.call('HSET', key, 'group', group, 'cluster_id', cluster_id)
elseif before == '' and redis.call('HGET', key, 'group') == group then
  redis.call('HSET', key, 'cluster_id', cluster_id)
end
return redis.call('HMGET', key, 'id', 'group', 'cluster_id')
