"""Immutable snapshots of groups and clusters, for any thread. A `FleetSnapshot` contains a `GroupSnapshot` of the
fleet's group, so that code for groups also works for a fleet."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from kctl.reduce.base import GroupStats
from kctl.rows.columns import Names, PartitionColumns, PartitionRows
from kctl.rows.partitions import LagTotals
from kctl.status import UNKNOWN, Assessment
from kctl.status.assessments import NOT_ASSESSED, Assessments

Detail: TypeAlias = Literal["partition", "topic", "group"]


@dataclass(frozen=True, slots=True)
class GroupSnapshot:
    """The state of one group. Unknown or outdated values are None or `UNKNOWN`."""

    cluster: str
    group: str
    partitions: PartitionRows
    assessments: Assessments
    assessment: Assessment = UNKNOWN
    lag: LagTotals = field(default_factory=LagTotals)
    stats: GroupStats | None = None  # None if the coordinator did not report them
    type: str | None = None
    """`classic`, `consumer` (KIP-848), `share`, `streams`; None if not requested, or the broker is too old."""
    coordinator: int | None = None
    is_own: bool = False
    detail: Detail = "partition"  # the smallest unit with series
    age_seconds: float | None = None
    """Age of the oldest offsets at the collection; None without partitions."""


class GroupColumns(NamedTuple):
    partitions: PartitionColumns
    assessments: Assessments


NOTHING_KNOWN = GroupColumns(PartitionColumns(Names({})), NOT_ASSESSED)


@dataclass(frozen=True, slots=True, eq=False)
class ClusterSnapshot:
    cluster: str
    groups: tuple[GroupSnapshot, ...]
    """Sorted by name; none before the first poll without a failure."""
    taken_at: float  # monotonic seconds
    taken_at_unix: float
    collect_seconds: float
    up: Mapping[str, bool]
    """Part (`groups`, `committed`, `members`, `offsets`) -> whether the last poll was complete."""
    last_success: Mapping[str, float]  # part -> Unix seconds; absent before the first success
    errors: Mapping[str, str] = field(default_factory=dict)
    cut_groups: int = 0  # groups without partition series, because there would be too many
    is_ready: bool = True
    """False before the first poll without a failure, for at most `stale_after_seconds`."""
    sequence: int = 0
    columns: GroupColumns = NOTHING_KNOWN
    """The partitions of all `groups`, one group after the other."""

    def __del__(self, at_once: int = 500) -> None:
        """Releases the groups in parts. Releasing tens of thousands at once blocks all other threads for 60 ms."""
        # `at_once` is an argument, because module names may be gone when the interpreter ends.
        groups = list(self.groups)
        object.__setattr__(self, "groups", ())
        while groups:
            del groups[-at_once:]


@dataclass(frozen=True, slots=True, eq=False)
class Clusters:
    """The last snapshot of each cluster, in the order of the configuration."""

    clusters: tuple[ClusterSnapshot, ...]
