"""Agents' answers to one result that can be trusted to be whole or to say what it lacks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import NoneType

from kctl.master.freshness import gaps
from kctl.master.snapshot import Reduced
from kctl.reduce import (
    REDUCERS,
    Answer,
    ClusterFigures,
    Freshness,
    PartitionRow,
    kafka_lag,
    offset_checker,
    partition_rows,
)
from kctl.rpc.fan_out import Failed, FanOut
from kctl_agent.wire import JsonObject

__all__ = ["of_partitions", "reduced", "usable", "with_gaps"]

_NUMBER = (int, NoneType)
_COMPARED: dict[str, tuple[type, ...]] = {
    "topic": (str,),
    "partition": (int,),
    "generation": _NUMBER,
    "age_seconds": (*_NUMBER, float),
    "start": _NUMBER,
    "committed": _NUMBER,
    "position": _NUMBER,
    "end": _NUMBER,
}
"""What is compared, sorted or summed over several answers: one alone may be readable and still not fit the others."""


_OF_ROWS = {"kafka_lag": kafka_lag.of_rows, "offset_checker": offset_checker.of_rows}
"""What these answer comes by the thousand: it is looked at once and not reduced on trial."""
_MOST = 2**62
"""Offsets are 64 bits wide, and so is what is kept of them and of their differences."""


def usable(rpc: str, outcome: FanOut) -> FanOut:
    """`outcome` without the answers that the reducer of `rpc` cannot read: an attached agent may say anything.

    Pure and safe in any thread. Their senders are moved to the failed ones, with the code `bad_result`.
    """
    readable = [answer for answer in outcome.answers if _is_well_formed(rpc, answer)]
    if rpc not in _OF_ROWS and not _can_be_reduced(rpc, readable):
        readable = [answer for answer in readable if _can_be_reduced(rpc, [answer])]
    if len(readable) == len(outcome.answers):
        return outcome
    senders = {answer.sender for answer in readable}
    failed = [
        Failed(answer.sender, "bad_result", "its answer does not have the shape of this command")
        for answer in outcome.answers
        if answer.sender not in senders
    ]
    return FanOut(readable, sorted([*outcome.failed, *failed], key=lambda each: each.sender), outcome.stopped)


def reduced(rpc: str, outcome: FanOut, figures: ClusterFigures | None, brokers: Freshness) -> Reduced:
    """The reduced result with its completeness. Pure, safe in any thread."""
    if rpc in _OF_ROWS:
        return of_partitions(rpc, partition_rows(outcome.answers, figures), outcome, brokers)
    return with_gaps(rpc, _completed(REDUCERS[rpc](outcome.answers, figures), outcome), brokers)


def of_partitions(rpc: str, rows: Sequence[PartitionRow], outcome: FanOut, brokers: Freshness) -> Reduced:
    """The same of rows that are merged already; as old as the oldest of them."""
    told = with_gaps(rpc, _completed(_OF_ROWS[rpc](rows), outcome), brokers, rows)
    ages = [row.age_seconds for row in rows]
    return replace(told, age_seconds=max([*ages, told.age_seconds or 0.0])) if ages else told


def with_gaps(rpc: str, whole: Reduced, brokers: Freshness, rows: Sequence[PartitionRow] = ()) -> Reduced:
    """With what is stale or unknown of the brokers' figures among the failed."""
    return replace(whole, failed=(*whole.failed, *gaps(rpc, brokers, rows)))


def _completed(result: JsonObject, outcome: FanOut) -> Reduced:
    answered = tuple(answer.sender for answer in outcome.answers)
    return Reduced(
        result=result,
        asked=tuple(sorted([*answered, *(failure.sender for failure in outcome.failed)])),
        answered=answered,
        failed=tuple(outcome.failed),
        age_seconds=max((answer.age_seconds for answer in outcome.answers), default=None),
        stopped=outcome.stopped,
    )


def _is_well_formed(rpc: str, answer: Answer) -> bool:
    if rpc in _OF_ROWS:
        rows = answer.result.get("rows")
        return not rows or (isinstance(rows, list) and all(map(_is_partition, rows)))
    return all(_has_fitting_types(row) for row in (answer.result, *_rows(answer.result)))


def _can_be_reduced(rpc: str, answers: list[Answer]) -> bool:
    try:
        REDUCERS[rpc](answers, None)
    except Exception:  # a boundary: whatever a foreign answer breaks, it breaks alone
        return False
    return True


def _rows(result: JsonObject) -> list[JsonObject]:
    rows = result.get("rows")
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _has_fitting_types(row: JsonObject) -> bool:
    return all(type(row[name]) in kinds for name, kinds in _COMPARED.items() if name in row)


def _is_partition(row: object) -> bool:
    """Whether all that `partition_rows` and `kctl.status` read of a row is of its type and size."""
    if not isinstance(row, dict) or type(row.get("topic")) is not str or type(row.get("partition")) is not int:
        return False
    told = row.get
    for whole in (told("start"), told("committed"), told("position"), told("end"), told("generation")):
        if whole is not None and (type(whole) is not int or not -_MOST < whole < _MOST):
            return False
    for seconds in (told("age_seconds"), told("last_timestamp")):
        if seconds is not None and (type(seconds) not in (int, float) or not -_MOST < seconds < _MOST):
            return False
    return True
