"""Immutable snapshots of groups and clusters, `GroupSnapshot` and `ClusterSnapshot`, for any thread.

A `FleetSnapshot` has its own group as a `GroupSnapshot` too: pages are made from these, whatever the source.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from kctl.reduce.base import GroupStats
from kctl.rows.columns import Names, PartitionColumns, PartitionRows
from kctl.rows.lag import LagTotals
from kctl.status import UNKNOWN, Assessment
from kctl.status.assessments import NOT_ASSESSED, Assessments

_LET_GO_AT_ONCE = 500

Detail: TypeAlias = Literal["partition", "topic", "group"]


@dataclass(frozen=True, slots=True)
class GroupSnapshot:
    """The state of one group. What is unknown, or was not reported for too long, is None or missing."""

    cluster: str
    group: str
    partitions: PartitionRows
    """The partitions, sorted by topic and number."""
    assessments: Assessments
    """The assessment of each of `partitions`, in the same order."""
    assessment: Assessment = UNKNOWN
    lag: LagTotals = field(default_factory=LagTotals)
    stats: GroupStats | None = None
    """State and members; None if the coordinator did not report them."""
    type: str | None = None
    """`classic`, `consumer` (KIP-848), `share`, `streams`; None if not requested, or the broker is too old."""
    coordinator: int | None = None
    is_own: bool = False
    """Whether it is the group of this master's fleet."""
    detail: Detail = "partition"
    """The smallest unit with series."""
    age_seconds: float | None = None
    """The age of the oldest offsets at the collection; None without partitions."""
    protocol_type: str | None = None
    """`consumer`, `connect`, ...; empty if the group's clients choose their partitions themselves."""


class GroupColumns(NamedTuple):
    """Columns of the partitions of many groups, with their assessments."""

    partitions: PartitionColumns
    assessments: Assessments


NOTHING_KNOWN = GroupColumns(PartitionColumns(Names({})), NOT_ASSESSED)


@dataclass(frozen=True, slots=True, eq=False)
class ClusterSnapshot:
    """The state of a cluster's groups after one collection."""

    cluster: str
    groups: tuple[GroupSnapshot, ...]
    """The groups, sorted by name; none before the first poll without a failure."""
    taken_at: float
    """Monotonic seconds of the collection."""
    taken_at_unix: float
    collect_seconds: float
    up: Mapping[str, bool]
    """For each part (`groups`, `committed`, `members`, `offsets`) whether the last poll was complete."""
    last_success: Mapping[str, float]
    """For each part the Unix seconds of its last success; never: absent."""
    errors: Mapping[str, str] = field(default_factory=dict)
    """For each failed part the reason."""
    cut_groups: int = 0
    """Groups without series for their partitions, because there would be too many."""
    is_ready: bool = True
    """Whether there was a poll without a failure, or none for so long that the present state must do."""
    sequence: int = 0
    """The number of this collection."""
    columns: GroupColumns = NOTHING_KNOWN
    """The partitions of all `groups`, one group after the other."""

    def __del__(self, at_once: int = _LET_GO_AT_ONCE) -> None:
        """Releases the groups in parts: tens of thousands at once block all other threads for 60 ms.

        (The number is an argument, since at the interpreter's end a module's names are gone.)
        """
        groups = list(self.groups)
        object.__setattr__(self, "groups", ())
        while groups:
            del groups[-at_once:]


@dataclass(frozen=True, slots=True, eq=False)
class Clusters:
    """The last collection of each cluster, in the order of the configuration."""

    clusters: tuple[ClusterSnapshot, ...]
