"""The readers of partitions: `Owner` describes the reader of one partition, and `Owners` those of many, in columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from kctl.rows.columns import Bools, Ints, Reals, Rows

_STARTING = frozenset({"starting", "joining", "assigned"})

UNSEEN = "stopped or slow"  # the state of a query that is known only by its checkpoint


@dataclass(frozen=True, slots=True)
class Owner:
    """The worker that reads a partition, or why no worker reads it."""

    name: str | None  # None if no worker answers for the partition
    state: str | None = None
    """The worker's reported state, or `UNSEEN`. Without a worker, the fleet's: `starting`, `rebalancing`, or None."""
    trigger_seconds: float | None = 0.0
    """Seconds between batches; None: unknown, as with other clients."""
    last_batch_seconds: float | None = None
    batch_running_seconds: float | None = None
    """How long the batch had been running at the time of the newest offsets."""
    waits_for: str | None = None
    behind_transaction: int = 0
    """Messages that no `read_committed` reader gets before an open transaction ends."""
    transaction_seconds: float | None = None
    """How long an open transaction has kept the last stable offset in place."""
    members: int | None = None
    """Without a worker, the number of members that the group's coordinator reports.

    None if the coordinator did not answer. Also None for clients that choose their partitions themselves, because their
    group has no protocol type and no members.
    """
    interval_seconds: float = 0.0
    """Seconds between readings of the partition's offsets, if longer than usual."""


class Owners:
    """The owner of each of many partitions. Immutable."""

    def __init__(self, owners: Sequence[Owner], numbers: Rows) -> None:
        """`numbers` has each partition's index into `owners`."""
        self._owners, self._numbers = tuple(owners), numbers

    @classmethod
    def of(cls, owners: Iterable[Owner], spread: Callable[[Rows], Rows] = lambda numbers: numbers) -> Owners:
        """Makes columns from one owner per partition. If `owners` has one owner per group instead, pass `spread`, which
        turns a column of groups into a column of partitions."""
        distinct: dict[int, Owner] = {}
        found = [id(distinct.setdefault(id(owner), owner)) for owner in owners]
        numbers = {each: number for number, each in enumerate(distinct)}
        return cls([*distinct.values()], spread(np.array([numbers[each] for each in found], np.intp)))

    def __getitem__(self, row: int) -> Owner:
        return self._owners[int(self._numbers[row])]

    @property
    def is_named(self) -> Bools:
        return self._flags([each.name is not None for each in self._owners])

    @property
    def has_members(self) -> Bools:
        return self._flags([bool(each.members) for each in self._owners])

    @property
    def has_no_members(self) -> Bools:
        """Whether each partition's group is known to have no members."""
        return self._flags([each.members == 0 for each in self._owners])

    @property
    def is_starting(self) -> Bools:
        return self._flags([each.state in _STARTING for each in self._owners])

    def is_in(self, state: str) -> Bools:
        return self._flags([each.state == state for each in self._owners])

    @property
    def behind_transaction(self) -> Ints:
        return np.array([each.behind_transaction for each in self._owners], np.int64)[self._numbers]

    def _flags(self, of_owners: list[bool]) -> Bools:
        return np.array(of_owners, np.bool_)[self._numbers]

    def seconds(self, name: str) -> Reals:
        """Returns a field of each partition's owner, such as `trigger_seconds`; NaN if unknown."""
        return np.array([getattr(each, name) for each in self._owners], np.float64)[self._numbers]
