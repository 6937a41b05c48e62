-- ARGV: id, token, lease in milliseconds. Returns 1, or 0 if the lease is lost.
if redis.call('HGET', P .. 'block:' .. ARGV[1], 'token') ~= ARGV[2] then return 0 end
redis.call('ZADD', P .. 'timed', tick(ARGV[3] / 3) + ARGV[3], ARGV[1])
return 1
