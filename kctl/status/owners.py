"""The readers of partitions, as the rules take them: one by one, and by the column."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from kctl.rows.columns import Bools, Ints, Reals, Rows

_STARTING = frozenset({"starting", "joining", "assigned"})

UNSEEN = "stopped or slow"
"""The state of a query of which its checkpoint is all that is known: both look alike from outside."""


@dataclass(frozen=True, slots=True)
class Owner:
    """The worker that reads a partition, or why none does."""

    name: str | None
    """The worker's name; None when no worker answers for the partition."""
    state: str | None = None
    """As it reports itself, or `UNSEEN`; without an owner, that of the fleet: `starting`, `rebalancing`, or None."""
    trigger_seconds: float | None = 0.0
    """Seconds between batches; None: not known, as of other clients."""
    last_batch_seconds: float | None = None
    batch_running_seconds: float | None = None
    """As of the newest offsets."""
    waits_for: str | None = None
    """What is away that it waits for, `engine` for instance."""
    behind_transaction: int = 0
    """Messages that no `read_committed` reader can have before an open transaction ends."""
    transaction_seconds: float | None = None
    """For how long the last stable offset has not moved because of it."""
    members: int | None = None
    """Without an owner: how many members the group's coordinator counts; None when it did not answer, and of clients
    that choose their partitions themselves: their group has no protocol type and never a member."""
    interval_seconds: float = 0.0
    """Seconds between readings of its offsets, if they come more rarely than those of others."""


class Owners:
    """The owner of each of many partitions. Immutable; what is not known is NaN."""

    def __init__(self, owners: Sequence[Owner], numbers: Rows) -> None:
        """`numbers` has for each partition which of `owners` is its own."""
        self._owners, self._numbers = tuple(owners), numbers

    @classmethod
    def of(cls, owners: Iterable[Owner], spread: Callable[[Rows], Rows] = lambda numbers: numbers) -> Owners:
        """Makes the owners of partitions, or of groups, with `spread` from groups to partitions. Many are the same
        object."""
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
        """Whether it is known that a group has no members."""
        return self._flags([each.members == 0 for each in self._owners])

    @property
    def is_starting(self) -> Bools:
        return self._flags([each.state in _STARTING for each in self._owners])

    def is_in(self, state: str) -> Bools:
        return self._flags([each.state == state for each in self._owners])

    @property
    def trigger_seconds(self) -> Reals:
        return self._seconds([each.trigger_seconds for each in self._owners])

    @property
    def last_batch_seconds(self) -> Reals:
        return self._seconds([each.last_batch_seconds for each in self._owners])

    @property
    def batch_running_seconds(self) -> Reals:
        return self._seconds([each.batch_running_seconds for each in self._owners])

    @property
    def interval_seconds(self) -> Reals:
        return self._seconds([each.interval_seconds for each in self._owners])

    @property
    def transaction_seconds(self) -> Reals:
        return self._seconds([each.transaction_seconds for each in self._owners])

    @property
    def behind_transaction(self) -> Ints:
        return np.array([each.behind_transaction for each in self._owners], np.int64)[self._numbers]

    def _flags(self, of_owners: list[bool]) -> Bools:
        return np.array(of_owners, np.bool_)[self._numbers]

    def _seconds(self, of_owners: list[float | None]) -> Reals:
        return np.array(of_owners, np.float64)[self._numbers]
