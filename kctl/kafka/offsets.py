"""Reads and commits offsets of many partitions. Sends one request to each leader or coordinator."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from kafka.protocol.consumer import ListOffsetsRequest, OffsetCommitRequest, OffsetFetchRequest

from kctl.errors import BrokerUnreachable, KctlError
from kctl.kafka.client.connection import ClusterConnection
from kctl.kafka.client.layout import Partition, Topic, topics_of
from kctl.kafka.client.reasons import COORDINATOR_ERRORS, code_failure, name_of_code, or_raise
from kctl.kafka.protocol.offset_bytes import LIST_VERSIONS, PartitionKeys, listed
from kctl.kafka.protocol.raw import UNREADABLE, Raw

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
_LEADER_MOVED = {
    "NOT_LEADER_OR_FOLLOWER",
    "FENCED_LEADER_EPOCH",
    "UNKNOWN_LEADER_EPOCH",
    "UNKNOWN_TOPIC_OR_PARTITION",  # a listed partition is still being created, or was just deleted
}
_NO_EPOCH = -1
_MAX_VERSION_WITH_NAMES = 9  # later versions of OffsetFetch and OffsetCommit name topics by id


class LogOffset(NamedTuple):
    """An offset of a log. If the log has no record at or after the requested time, `offset` and `error` are None."""

    offset: int | None
    timestamp: int | None = None
    error: str | None = None


class Committed(NamedTuple):
    """A group's committed offset in one partition. Without a commit, `offset` is None."""

    offset: int | None
    leader_epoch: int | None = None
    metadata: str | None = None
    error: str | None = None
    lag: int | None = None  # as the broker reports it, only for share groups


def log_offsets(
    connection: ClusterConnection,
    topics: Mapping[str, Topic],
    wanted: Iterable[Partition],
    at: int = LATEST,
    *,
    is_read_committed: bool = False,
) -> dict[Partition, LogOffset]:
    """Returns the offset of each log at `at`, which is LATEST, EARLIEST, MAX_TIMESTAMP or a time in milliseconds. If a
    leader has moved or does not answer, retries until half of the connection's time-out has passed."""
    offsets: dict[Partition, LogOffset] = {}
    missing = list(wanted)
    while True:
        leaders = _leaders(topics, missing, offsets)
        unreachable = _ask_leaders(connection, leaders, at, is_read_committed, offsets)
        missing = [
            key
            for each in leaders.values()
            for key in each
            if key in unreachable or offsets[key].error in _LEADER_MOVED
        ]
        if not missing or not connection.deadline.may_retry:
            return offsets
        connection.pause()
        topics = topics_of(connection.metadata(sorted({topic for topic, _ in missing})))


def committed(
    connection: ClusterConnection, groups: Mapping[str, Iterable[Partition] | None]
) -> dict[str, dict[Partition, Committed] | KctlError]:
    """Returns each group's committed offsets in its partitions (None: in all partitions), or the group's error."""
    partitions = {name: None if keys is None else list(keys) for name, keys in groups.items()}
    done: dict[str, dict[Partition, Committed] | KctlError] = {}
    open_names = list(partitions)
    while open_names:
        by_node: dict[int, list[str]] = defaultdict(list)
        for name, node in connection.coordinators(open_names).items():
            if isinstance(node, KctlError):
                done[name] = node
            else:
                by_node[node].append(name)
        answers = connection.ask_each([(node, _fetch(partitions, names)) for node, names in by_node.items()])
        again: list[str] = []
        for names, answer in zip(by_node.values(), answers, strict=True):
            if isinstance(answer, BrokerUnreachable) and connection.deadline.may_retry:
                again += names  # the cluster chooses another coordinator once it has noticed
                continue
            if isinstance(answer, KctlError):
                done |= dict.fromkeys(names, answer)
                continue
            for group in answer.groups:
                if group.error_code in COORDINATOR_ERRORS and connection.deadline.may_wait:
                    again.append(group.group_id)
                elif group.error_code:
                    done[group.group_id] = code_failure(group.error_code, f"group {group.group_id}")
                else:
                    done[group.group_id] = _committed_of(group)
        open_names = again
        if again:
            connection.pause()
    return done


class LogOffsets(NamedTuple):
    """Offsets of many logs. `errors` has the error names of single partitions. `failed` has the reason for each leader
    that failed. Partitions of a failed leader are missing from `offsets` and `errors`."""

    offsets: dict[Partition, int]
    errors: dict[Partition, str]
    failed: dict[int, str]


def log_offsets_on(
    connection: ClusterConnection,
    leaders: Mapping[int, Mapping[str, Sequence[int]]],
    at: int,
    keys: PartitionKeys,
    *,
    is_read_committed: bool = False,
    kept: dict[tuple[int, int], Raw] | None = None,
) -> LogOffsets:
    """Returns the offset of each log at `at`, which is LATEST or EARLIEST. Asks all leaders at once, without retries.
    `leaders` has partitions by leader and topic. `kept` caches the encoded requests for the same `leaders`."""
    logs, kept = LogOffsets({}, {}, {}), {} if kept is None else kept
    for node, topics in leaders.items():
        if (node, at) not in kept:  # callers never change `is_read_committed` for the same `kept`
            kept[node, at] = Raw(_list_request(topics, at, is_read_committed))
    requests = [(node, kept[node, at]) for node in leaders]
    for node, answer in zip(leaders, connection.ask_each(requests), strict=True):
        if isinstance(answer, KctlError):
            logs.failed[node] = str(answer)
            continue
        try:
            rows = list(listed(answer.body, keys))
        except UNREADABLE as error:
            logs.failed[node] = f"a response to ListOffsets cannot be read: {error}"
            continue
        for partitions, offsets, codes in rows:
            if not any(codes) and min(offsets, default=0) >= 0:
                logs.offsets.update(zip(partitions, offsets, strict=True))
                continue
            for key, offset, code in zip(partitions, offsets, codes, strict=True):
                if code:
                    logs.errors[key] = name_of_code(code) or "UNKNOWN"
                elif offset >= 0:
                    logs.offsets[key] = offset
    return logs


def _list_request(topics: Mapping[str, Sequence[int]], at: int, is_read_committed: bool) -> Any:
    # Partitions are tuples, because thousands of kafka-python's objects take 20 ms.
    topic = ListOffsetsRequest.ListOffsetsTopic
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=int(is_read_committed),
        topics=[
            topic(name=name, partitions=[(number, _NO_EPOCH, at) for number in numbers])
            for name, numbers in topics.items()
        ],
        min_version=7 if at == MAX_TIMESTAMP else LIST_VERSIONS[0],
        max_version=LIST_VERSIONS[-1],
    )


def commit(connection: ClusterConnection, group: str, offsets: Mapping[Partition, int]) -> dict[Partition, str | None]:
    """Commits offsets without being a member, and returns each partition's error, or None. If the group has live
    members, the broker rejects the commit. Raises KctlError."""
    topic = OffsetCommitRequest.OffsetCommitRequestTopic
    topics: dict[str, list[Any]] = defaultdict(list)
    for (name, partition), offset in offsets.items():
        topics[name].append(
            topic.OffsetCommitRequestPartition(
                partition_index=partition, committed_offset=offset, committed_leader_epoch=-1, committed_metadata=""
            )
        )
    while True:
        node = or_raise(connection.coordinators([group])[group])
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=-1,
            member_id="",
            group_instance_id=None,
            retention_time_ms=-1,
            topics=[topic(name=name, partitions=partitions) for name, partitions in topics.items()],
            max_version=_MAX_VERSION_WITH_NAMES,
        )
        answer = connection.ask(request, node)
        codes = {
            (each.name, partition.partition_index): partition.error_code
            for each in answer.topics
            for partition in each.partitions
        }
        if not COORDINATOR_ERRORS & set(codes.values()) or not connection.deadline.may_wait:
            return {key: name_of_code(code) for key, code in codes.items()}
        connection.pause()


def _leaders(
    topics: Mapping[str, Topic], partitions: list[Partition], offsets: dict[Partition, LogOffset]
) -> dict[int, list[Partition]]:
    known: dict[str, dict[int, Any]] = {}
    leaders: dict[int, list[Partition]] = defaultdict(list)
    for key in partitions:
        name, number = key
        topic = topics.get(name)
        if name not in known:
            known[name] = {} if topic is None else {each.partition: each for each in topic.partitions}
        partition = known[name].get(number)
        if partition is None:
            code = topic.error_code if topic is not None and topic.error_code else 3
            offsets[key] = LogOffset(None, error=name_of_code(code))
        elif partition.leader is None:
            offsets[key] = LogOffset(None, error=partition.error or "LEADER_NOT_AVAILABLE")
        else:
            leaders[partition.leader].append(key)
    return leaders


def _ask_leaders(
    connection: ClusterConnection,
    leaders: dict[int, list[Partition]],
    at: int,
    is_read_committed: bool,
    offsets: dict[Partition, LogOffset],
) -> set[Partition]:
    unreachable: set[Partition] = set()
    requests = [(leader, _list_request(_by_topic(keys), at, is_read_committed)) for leader, keys in leaders.items()]
    for keys, answer in zip(leaders.values(), connection.ask_each(requests), strict=True):
        if isinstance(answer, KctlError):
            offsets.update(dict.fromkeys(keys, LogOffset(None, error=str(answer))))
            if isinstance(answer, BrokerUnreachable):
                unreachable.update(keys)
            continue
        for topic in answer.topics:
            for each in topic.partitions:
                offsets[topic.name, each.partition_index] = LogOffset(
                    each.offset if each.offset >= 0 else None,
                    each.timestamp if each.timestamp >= 0 else None,
                    name_of_code(each.error_code),
                )
    return unreachable


def _by_topic(keys: Iterable[Partition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = defaultdict(list)
    for topic, partition in keys:
        topics[topic].append(partition)
    return topics


def fetch_all(names: list[str]) -> Any:
    return _fetch(dict.fromkeys(names), names)


def _fetch(wanted: Mapping[str, list[Partition] | None], names: list[str]) -> Any:
    group = OffsetFetchRequest.OffsetFetchRequestGroup
    groups = []
    for name in names:
        keys = wanted[name]
        topics = keys and [
            group.OffsetFetchRequestTopics(name=topic, partition_indexes=partitions)
            for topic, partitions in _by_topic(keys).items()
        ]
        groups.append(group(group_id=name, member_id=None, member_epoch=-1, topics=topics))
    return OffsetFetchRequest(groups=groups, min_version=8, max_version=_MAX_VERSION_WITH_NAMES)


def _committed_of(group: Any) -> dict[Partition, Committed]:
    return {
        (topic.name, each.partition_index): Committed(
            each.committed_offset if each.committed_offset >= 0 else None,
            each.committed_leader_epoch if each.committed_leader_epoch >= 0 else None,
            each.metadata or None,
            name_of_code(each.error_code),
        )
        for topic in group.topics
        for each in topic.partitions
    }


def share_starts(
    connection: ClusterConnection, groups: Mapping[int, Sequence[str]]
) -> dict[str, dict[Partition, Committed] | KctlError]:
    """Returns the start offsets of each share group (KIP-932), or its error.

    Since Kafka 4.2, brokers report the lag (KIP-1226). Before, it counts from the start offset, above which members may
    already have processed messages.
    """
    from kctl.kafka.protocol.messages import DescribeShareGroupOffsetsRequest

    wanted = DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup
    requests = [
        (node, DescribeShareGroupOffsetsRequest(groups=[wanted(group_id=name, topics=None) for name in names]))
        for node, names in groups.items()
    ]
    found: dict[str, dict[Partition, Committed] | KctlError] = {}
    for names, answer in zip(groups.values(), connection.ask_each(requests), strict=True):
        if isinstance(answer, KctlError):
            found |= dict.fromkeys(names, answer)
            continue
        for each in answer.groups:
            failed = each.error_code and code_failure(each.error_code, f"group {each.group_id}", each.error_message)
            found[each.group_id] = failed or _starts_of(each)
    return found


def _starts_of(described: Any) -> dict[Partition, Committed]:
    return {
        (topic.topic_name, each.partition_index): Committed(
            each.start_offset if each.start_offset >= 0 else None,
            error=name_of_code(each.error_code),
            lag=each.lag if each.lag is not None and each.lag >= 0 else None,
        )
        for topic in described.topics
        for each in topic.partitions
    }
