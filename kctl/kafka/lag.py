"""Reads the lag of groups in each partition, and which member owns the partition."""

from collections.abc import Iterable
from typing import NamedTuple

from kctl.errors import KctlError
from kctl.kafka.client.connection import ClusterConnection
from kctl.kafka.client.layout import Partition, Topic, topics_of
from kctl.kafka.groups import Group, Member, describe_groups
from kctl.kafka.offsets import Committed, LogOffset, committed, log_offsets, share_starts


class LagRow(NamedTuple):
    """A group's lag in one partition. If an offset cannot be read, `error` has the reason."""

    group: str
    topic: str
    partition: int
    current_offset: int | None
    log_end_offset: int | None
    lag: int | None
    consumer_id: str | None = None  # a share group's row has no member
    host: str | None = None
    client_id: str | None = None
    error: str | None = None


def lag_of(offset: int | None, end: int | None) -> int | None:
    return None if offset is None or end is None else max(end - offset, 0)


def read_lag(
    connection: ClusterConnection,
    groups: Iterable[str],
    topics: dict[str, Topic] | None = None,
    *,
    is_read_committed: bool = False,
) -> tuple[list[LagRow], list[KctlError]]:
    """Returns each group's rows, sorted by partition, and the errors of groups that cannot be read.

    Covers all partitions of `topics`. If `topics` is None, covers partitions with a committed offset or an owner. Reads
    committed offsets before log ends, so a lag may be slightly too large but never too small.
    """
    names = list(dict.fromkeys(groups))
    only = None if topics is None else [(t.name, p.partition) for t in topics.values() for p in t.partitions]
    offsets = committed(connection, dict.fromkeys(names, only))
    described = {group.group: group for group in describe_groups(connection, names)}
    problems: list[KctlError] = []
    shown: dict[str, dict[Partition, Committed]] = {}
    for name in names:
        group, known = described[name], offsets[name]
        if group.type == "share":
            known = _share_starts(connection, group)
            if only is not None and not isinstance(known, KctlError):
                known = {key: known.get(key, Committed(None)) for key in only}
        if isinstance(known, KctlError):
            problems.append(known)
        elif group.error is not None and all(each.offset is None for each in known.values()):
            problems.append(group.error)
        else:
            held = [key for key in _holders(group) if topics is None or key[0] in topics]
            shown[name] = dict.fromkeys(held, Committed(None)) | known
    partitions = sorted({key for known in shown.values() for key in known})
    if topics is None and partitions:
        topics = topics_of(connection.metadata(sorted({topic for topic, _ in partitions})))
    ends = log_offsets(connection, topics or {}, partitions, is_read_committed=is_read_committed)
    rows = [row for name, known in shown.items() for row in _rows(described[name], known, ends)]
    return rows, problems


def _share_starts(connection: ClusterConnection, group: Group) -> dict[Partition, Committed] | KctlError:
    if group.coordinator is None:
        return group.error or KctlError(f"group {group.group} has no coordinator")
    return share_starts(connection, {group.coordinator: [group.group]})[group.group]


def _holders(group: Group) -> dict[Partition, Member]:
    return {
        (topic, partition): member
        for member in group.members or ()
        for topic, partitions in (member.assigned or {}).items()
        for partition in partitions
    }


def _rows(group: Group, known: dict[Partition, Committed], ends: dict[Partition, LogOffset]) -> list[LagRow]:
    holders = {} if group.type == "share" else _holders(group)
    rows = []
    for key in sorted(known):
        mine, end, holder = known[key], ends[key], holders.get(key)
        lag = lag_of(mine.offset, end.offset) if mine.lag is None else mine.lag
        row = LagRow(group.group, *key, mine.offset, end.offset, lag, error=mine.error or end.error)
        if holder is not None:
            host = holder.host.removeprefix("/")
            row = row._replace(consumer_id=holder.member_id, host=host, client_id=holder.client_id)
        rows.append(row)
    return rows
