-- Precedes every script. All keys begin with KEYS[1], which has a hash tag: in a cluster they are in one slot.
--
--   layout       number  the version of this list
--   storage      hash    id, group, cluster_id: the storage's id and its owner
--   offset:TP    hash    next, topic_id, version of a partition, token of its last put; TP is topic:partition
--   partitions   set     every TP that has a stored offset or had a block
--   seq          number  the last id of a block or a dead letter
--   block:ID     hash    tp, topic_id, first, last, count, since; state, tries; owner, token, leased while leased
--   body:ID      string  the bytes of a block
--   sent:NAME    string  bytes of a block that the script of the same transaction has not judged yet
--   ready        zset    ids that can be claimed; score is the id, so that earlier puts come first
--   timed        zset    ids that are leased or delayed; score is when that ends, on the storage's clock
--   line:TP      zset    every id of a partition that is not dead
--   dead         zset    ids of dead letters; score is when it died, in milliseconds; dead:ID hash
--   dead_of:RUN  zset    dead letters of one partition and one cause: RUN is "TP CLASS<tab>LINE" (`causes.py`)
--   dead_runs    set     every RUN that has a dead letter
--   dead_at      hash    place in Kafka (`place_of`) -> id of its newest dead letter
--   counts       hash    "TP STATE" -> messages, "TP bytes" -> bytes: what `stats` reads
--   claimed      hash    owner -> its last claim, and
--   settled      hash    owner -> its last settle, so that a call whose reply was lost can be repeated
--   done:TOKEN   string  the reply of a call that can be repeated (`once`)
--   clock        hash    machine: the server's TIME when it was last read; now: the storage's clock; milliseconds
--
-- Numbers are compared as Lua's doubles, exact up to 2^53, and stored as the text they came in.
local P = KEYS[1]

-- A Redis at `maxmemory` rejects a script if its first write is a command that may need memory, but no later write
-- (scriptVerifyOOM in script.c; the same in 6.2). So the first write is one that needs none, to drain a full Redis.
-- Puts are still rejected, by the SETs of their transaction. Redis 6.2 does not know the flag `allow-oom`.
redis.call('DEL', P .. 'nothing')

local function text(number) return string.format('%.0f', number) end

local function machine_time()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- The storage's clock advances as far as the server's clock did since it was last read, by `most` at most. So a server
-- clock that is set back stops it for a moment instead of an hour, and one that is set forward ends no lease that is
-- renewed at a third of its length.
local function clock(most)
  local machine = machine_time()
  local last = tonumber(redis.call('HGET', P .. 'clock', 'machine') or machine)
  local now = tonumber(redis.call('HGET', P .. 'clock', 'now') or 0)
  return now + math.max(0, math.min(machine - last, most)), machine
end

local function tick(most)
  local now, machine = clock(most)
  redis.call('HSET', P .. 'clock', 'now', text(now), 'machine', text(machine))
  return now, machine
end

-- Returns {topic_id, next, version} of a stored offset; '' for a missing field.
local function read_stored_offset(tp)
  local stored = redis.call('HMGET', P .. 'offset:' .. tp, 'topic_id', 'next', 'version')
  return {stored[1] or '', stored[2] or '', stored[3] or ''}
end

local function count(tp, state, messages, bytes)
  redis.call('HINCRBY', P .. 'counts', tp .. ' ' .. state, messages)
  if bytes ~= 0 then redis.call('HINCRBY', P .. 'counts', tp .. ' bytes', bytes) end
end

-- Adds a block, whose bytes the caller puts into body:ID.
local function add(tp, topic_id, first, last, messages, size, machine)
  local id = redis.call('INCR', P .. 'seq')
  redis.call('HSET', P .. 'block:' .. id, 'tp', tp, 'topic_id', topic_id, 'first', first, 'last', last,
    'count', messages, 'since', text(machine), 'state', 'pending', 'tries', 0)
  redis.call('ZADD', P .. 'ready', id, id)
  redis.call('ZADD', P .. 'line:' .. tp, id, id)
  redis.call('SADD', P .. 'partitions', tp)
  count(tp, 'pending', messages, size)
  return id
end

local function size_of(id)
  return redis.call('STRLEN', P .. 'body:' .. id)
end

local function free(id, counts_try)
  local block = P .. 'block:' .. id
  local tp, messages, state = unpack(redis.call('HMGET', block, 'tp', 'count', 'state'))
  redis.call('ZREM', P .. 'timed', id)
  if not tp then return 0 end
  redis.call('HDEL', block, 'owner', 'token', 'leased')
  redis.call('HSET', block, 'state', 'pending')
  if counts_try then redis.call('HINCRBY', block, 'tries', 1) end
  redis.call('ZADD', P .. 'ready', id, id)
  count(tp, state, -messages, 0)
  count(tp, 'pending', messages, 0)
  return tonumber(messages)
end

local function remove(id)
  local block = P .. 'block:' .. id
  local tp, messages, state = unpack(redis.call('HMGET', block, 'tp', 'count', 'state'))
  count(tp, state, -messages, -size_of(id))
  redis.call('DEL', block, P .. 'body:' .. id)
  redis.call('ZREM', P .. 'ready', id)
  redis.call('ZREM', P .. 'timed', id)
  redis.call('ZREM', P .. 'line:' .. tp, id)
  return tonumber(messages)
end

local function place_of(tp, topic_id, first, last)
  return table.concat({tp, topic_id, first, last}, ' ')
end

local function run_of(tp, cause)
  return tp .. ' ' .. cause
end

-- Returns the number of its messages; 0 if the block no longer exists.
local function remove_dead_letter(id)
  local key = P .. 'dead:' .. id
  local tp, topic_id, first, last, messages, cause =
    unpack(redis.call('HMGET', key, 'tp', 'topic_id', 'first', 'last', 'count', 'cause'))
  if not tp then return 0 end
  count(tp, 'dead', -messages, -redis.call('HSTRLEN', key, 'body'))
  redis.call('DEL', key)
  redis.call('ZREM', P .. 'dead', id)
  local run = run_of(tp, cause)
  redis.call('ZREM', P .. 'dead_of:' .. run, id)
  if redis.call('EXISTS', P .. 'dead_of:' .. run) == 0 then redis.call('SREM', P .. 'dead_runs', run) end
  local place = place_of(tp, topic_id, first, last)
  if redis.call('HGET', P .. 'dead_at', place) == id then redis.call('HDEL', P .. 'dead_at', place) end
  return tonumber(messages)
end

-- Replaces an older dead letter of the same message. All ids have the same number of digits, because a sorted set
-- orders those that died in one millisecond by their text.
local function add_dead_letter(tp, topic_id, first, last, messages, tries, reason, cause, damaged, body, machine)
  local place = place_of(tp, topic_id, first, last)
  remove_dead_letter(redis.call('HGET', P .. 'dead_at', place) or '')
  local id = string.format('%016.0f', redis.call('INCR', P .. 'seq'))
  redis.call('HSET', P .. 'dead_at', place, id)
  redis.call('HSET', P .. 'dead:' .. id, 'tp', tp, 'topic_id', topic_id, 'first', first, 'last', last, 'count', messages,
    'tries', tries, 'error', reason, 'cause', cause, 'damaged', damaged, 'body', body, 'at', text(machine))
  local run = run_of(tp, cause)
  redis.call('ZADD', P .. 'dead', text(machine), id)
  redis.call('ZADD', P .. 'dead_of:' .. run, text(machine), id)
  redis.call('SADD', P .. 'dead_runs', run)
  redis.call('SADD', P .. 'partitions', tp)
  count(tp, 'dead', messages, #body)
end

-- Whether a block is selected by topic, partition, offset_from, offset_to as in ARGV, '' for any.
local function selects(topic, partition, offset_from, offset_to, tp, first, last)
  local its_topic, its_partition = string.match(tp, '^(.*):(%d+)$')
  return (topic == '' or topic == its_topic) and (partition == '' or partition == its_partition)
    and (offset_from == '' or tonumber(last) >= tonumber(offset_from))
    and (offset_to == '' or tonumber(first) <= tonumber(offset_to))
end

-- Runs `change` once. A call that is repeated with its token, because the reply was lost, returns the first result.
local function once(token, change)
  local done = P .. 'done:' .. token
  local reply = redis.call('GET', done)
  if reply then return cmsgpack.unpack(reply) end
  reply = change()
  redis.call('SET', done, cmsgpack.pack(reply), 'EX', 60)
  return reply
end
