"""The status of the partitions of all groups of a cluster at once, by the rules of `kctl.status`. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from kctl.groups.partitions import Names, PartitionColumns
from kctl.status import Assessment, Owner, StatusRules
from kctl.status.assessments import Assessments, of_groups
from kctl.status.columns import ColumnAssessor
from kctl.status.observations import Ints
from kctl.status.owners import Owners


class GroupAssessor:
    """Judges all groups. One thread at a time. What is not among the partitions any more is forgotten."""

    def __init__(self, rules: StatusRules, allowed_lag_of: Callable[[str], int]) -> None:
        """`allowed_lag_of` returns the messages with which nothing counts as waiting, by the name of the group."""
        self._rules, self._allowed_lag_of = rules, allowed_lag_of
        self._columns = ColumnAssessor(rules)
        self._names = Names({})
        self._allowed_lag = np.empty(0, np.int64)

    def adopt(self, rules: StatusRules, allowed_lag_of: Callable[[str], int]) -> None:
        """Judges by these rules from now on; what was seen of groups that are judged otherwise now is forgotten."""
        self._allowed_lag_of = allowed_lag_of
        if rules != self._rules:
            self._rules, self._columns, self._names = rules, ColumnAssessor(rules), Names({})
            return
        old, self._allowed_lag = self._allowed_lag, self._allowed(self._names)
        self._columns.choose(np.where(old == self._allowed_lag, np.arange(len(old)), -1))

    def assess(
        self, partitions: PartitionColumns, owners: Sequence[Owner], now_unix: float
    ) -> tuple[Assessments, list[Assessment]]:
        """Returns the assessments of all partitions, and those of the groups. `owners` are those of the groups,
        `now_unix` the moment `partitions.now` as Unix seconds."""
        names = partitions.names
        if names is not self._names:
            self._columns.choose(names.moved_from(self._names))
            self._names, self._allowed_lag = names, self._allowed(names)
        found = self._columns.assess(
            partitions.reported, _spread(names, owners), self._allowed_lag, partitions.now, now_unix
        )
        return found, of_groups(found, names.begins, names.name)

    def _allowed(self, names: Names) -> Ints:
        found: Ints = names.spread(np.array([self._allowed_lag_of(name) for name in names.groups], np.int64))
        return found


def _spread(names: Names, owners: Sequence[Owner]) -> Owners:
    """Spreads owners over partitions: thousands of groups have but a few owners that differ."""
    numbers: dict[int, int] = {}
    of_groups = [numbers.setdefault(id(owner), len(numbers)) for owner in owners]
    distinct = {id(owner): owner for owner in owners}
    return Owners(list(distinct.values()), names.spread(np.array(of_groups, np.intp)))
