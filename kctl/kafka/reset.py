"""Resets a group's offsets to the start, the end, an offset or a time, or shifts them."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kctl.errors import BrokerRefused, GroupActive, GroupMissing
from kctl.kafka.client.connection import ClusterConnection
from kctl.kafka.client.layout import Partition, Topic
from kctl.kafka.client.reasons import or_raise
from kctl.kafka.groups import Group, describe_groups
from kctl.kafka.offsets import EARLIEST, LATEST, Committed, LogOffset, commit, committed, log_offsets
from kctl.kafka.target import Target


class OffsetChange(NamedTuple):
    """A change of a committed offset. If `new` is None, `error` has the reason."""

    topic: str
    partition: int
    old: int | None
    new: int | None
    error: str | None = None

    @property
    def difference(self) -> int | None:
        return None if self.old is None or self.new is None else self.new - self.old


def plan(
    connection: ClusterConnection, group: str, topics: Mapping[str, Topic], wanted: Iterable[Partition], to: Target
) -> list[OffsetChange]:
    """Returns each wanted partition's change. The new offset lies within the log. Raises GroupActive, KctlError."""
    keys = sorted(wanted)
    refuse_active(connection, group)
    known = or_raise(committed(connection, {group: keys})[group])
    starts = log_offsets(connection, topics, keys, EARLIEST)
    ends = log_offsets(connection, topics, keys, LATEST)
    at = log_offsets(connection, topics, keys, to.number) if to.kind == "time" else {}
    return [_change(key, known.get(key, Committed(None)), starts[key], ends[key], at.get(key), to) for key in keys]


def apply(connection: ClusterConnection, group: str, changes: Iterable[OffsetChange]) -> list[OffsetChange]:
    """Commits the changes that have no error. Returns all changes with their errors. Raises GroupActive, KctlError."""
    changes = list(changes)
    offsets = {(c.topic, c.partition): c.new for c in changes if c.new is not None and c.error is None}
    if not offsets:
        return changes
    errors = commit(connection, group, offsets)
    if "UNKNOWN_MEMBER_ID" in errors.values() or "STALE_MEMBER_EPOCH" in errors.values():
        refuse_active(connection, group)
    return [c._replace(error=c.error or errors.get((c.topic, c.partition))) for c in changes]


def refuse_active(connection: ClusterConnection, group: str) -> None:
    """Checks that a group has no members. Raises GroupActive, KctlError, BrokerRefused (share and streams groups)."""
    [described] = describe_groups(connection, [group])
    if described.error is not None and not isinstance(described.error, GroupMissing):
        raise described.error
    if described.type in ("share", "streams"):
        raise BrokerRefused(f"group {group} is a {described.type} group: it has no committed offsets to set")
    refuse_members(described)


def refuse_members(group: Group) -> None:
    members = group.members or ()
    if members:
        named = ", ".join(f"{m.member_id} ({m.client_id} at {m.host.removeprefix('/')})" for m in members)
        raise GroupActive(
            f"group {group.group} is {group.state} with {len(members)} live member{'s' * (len(members) > 1)}: {named}; "
            "stop them first"
        )


def _change(
    key: Partition, known: Committed, start: LogOffset, end: LogOffset, at: LogOffset | None, to: Target
) -> OffsetChange:
    error = known.error or start.error or end.error or (at.error if at else None)
    if error is not None or start.offset is None or end.offset is None:
        return OffsetChange(*key, known.offset, None, error or "UNKNOWN_OFFSET")
    if to.kind == "shift" and known.offset is None:
        return OffsetChange(*key, None, None, "nothing is committed, so there is nothing to shift")
    new = to.within(start.offset, end.offset, at and at.offset, known.offset or 0)
    return OffsetChange(*key, known.offset, new)
