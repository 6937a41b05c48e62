"""Partitions and their assessments by column, from rows that a test writes down."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple, cast

import numpy as np

from kctl.groups.snapshot import GroupColumns, GroupSnapshot
from kctl.rows.columns import ABSENT, Ints, Names, PartitionColumns, Reals
from kctl.rows.partitions import ResetPolicy
from kctl.status import Assessment, Assessor, Owner, StatusRules
from kctl.status.assessments import AssessmentColumns, Assessments, of_groups
from kctl.status.judgements import Judgements
from kctl.status.owners import Owners
from kctl.status.words import NUMBERS


class Row(NamedTuple):
    """A partition as a source reports it. `reset` decides where lag starts if nothing was committed."""

    topic: str
    partition: int
    start: int | None
    committed: int | None
    position: int | None
    end: int | None
    last_timestamp: float | None
    worker: str | None
    generation: int | None
    age_seconds: float
    reset: ResetPolicy = ResetPolicy.EARLIEST
    share_lag: int | None = None
    behind_transaction: int | None = None
    stored_messages: int | None = None
    stored_seconds: float | None = None

    @property
    def lag_from(self) -> int | None:
        if self.committed is not None:
            return self.committed
        return {ResetPolicy.EARLIEST: self.start, ResetPolicy.LATEST: self.position}.get(self.reset)


def columns_of(
    *rows: Row, now: float = 0.0, attached: Mapping[str, Sequence[Row]] = MappingProxyType({})
) -> PartitionColumns:
    groups = {"g": rows, **attached}
    every = [row for each in groups.values() for row in each]

    def ints(name: str) -> Ints:
        values = [getattr(row, name) for row in every]
        return np.array([ABSENT if value is None else value for value in values], np.int64)

    def reals(name: str) -> Reals:
        return np.array([getattr(row, name) for row in every], np.float64)

    return PartitionColumns(
        Names({name: tuple(row[:2] for row in each) for name, each in groups.items()}),
        now,
        at=now - reals("age_seconds"),
        start=ints("start"),
        committed=ints("committed"),
        lag_from=ints("lag_from"),
        end=ints("end"),
        share_lag=ints("share_lag"),
        behind_transaction=ints("behind_transaction"),
        position=ints("position"),
        last_timestamp=reals("last_timestamp"),
        worker=np.array([row.worker for row in every], np.object_),
        generation=ints("generation"),
        stored_messages=ints("stored_messages"),
        stored_seconds=reals("stored_seconds"),
    )


def joined(groups: Sequence[GroupSnapshot]) -> GroupColumns:
    sent = {"committed": "current_offset", "end": "kafka_max_offset"}
    names = Row._fields[:10]
    rows = {
        each.group: [
            Row(**{name: row[sent.get(name, name)] for name in names}, reset=ResetPolicy.NONE)
            for row in each.partitions.to_json("start", "position", "last_timestamp", "generation")
        ]
        for each in groups
    }
    of_groups = Names({name: tuple(row[:2] for row in each) for name, each in rows.items()})
    every = columns_of(*(row for each in rows.values() for row in each))
    found = [assessment for each in groups for assessment in each.assessments]
    return GroupColumns(replace(every, names=of_groups, stored_messages=None, share_lag=None), assessments_of(*found))


class RowAssessor:
    def __init__(self, rules: StatusRules | None = None, allowed_lag: int = 0) -> None:
        self._assessor = Assessor(StatusRules() if rules is None else rules, lambda _: allowed_lag)

    def assess(self, rows: Sequence[Row], owner_of: Callable[[Row], Owner], now: float, now_unix: float) -> Assessments:
        """Returns an assessment for each row. `now` is monotonic, `now_unix` the same moment as Unix seconds."""
        return self._assessor.assess(columns_of(*rows, now=now), Owners.of(map(owner_of, rows)), now_unix)


def of_group(rows: Sequence[Row], assessments: Assessments) -> Assessment:
    return of_groups(assessments, [0, len(rows)], lambda row: f"{rows[row].topic}-{rows[row].partition}")[0]


class _Given:
    def __init__(self, assessments: Sequence[Assessment]) -> None:
        self._assessments = assessments

    def reason(self, row: int, _owner: Owner, _rows: object) -> str:
        return self._assessments[row].reason


def assessments_of(*assessments: Assessment, cycles: Sequence[float] = ()) -> Assessments:
    """`cycles` are in seconds, 0 by default."""
    size = len(assessments)

    def reals(name: str) -> Reals:
        return np.array([getattr(each, name) for each in assessments], np.float64)

    return Assessments(
        AssessmentColumns(
            np.array([NUMBERS[each.status] for each in assessments], np.int8),
            np.zeros(size, np.int8),
            cast(Judgements, _Given(assessments)),
            Owners.of([Owner(None)] * size),
            reals("lag_seconds"),
            reals("growth_per_second"),
            reals("catchup_seconds"),
            reals("oldest_unhandled_seconds"),
            np.array(cycles or [0.0] * size),
        )
    )
