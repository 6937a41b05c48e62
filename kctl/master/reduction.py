"""Agents' answers to one result that can be trusted to be whole or to say what it lacks."""

from __future__ import annotations

from types import NoneType

from kctl.master.snapshot import Reduced
from kctl.reduce import REDUCERS, Answer, ClusterFigures
from kctl.rpc.fan_out import Failed, FanOut
from kctl_agent.wire import JsonObject

__all__ = ["completed", "reduced", "usable"]

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


_OF_PARTITIONS = frozenset({"kafka_lag", "offset_checker"})
"""What these answer comes by the thousand: it is looked at once and not reduced on trial."""
_MOST = 2**62
"""Offsets are 64 bits wide, and so is what is kept of them and of their differences."""


def usable(rpc: str, outcome: FanOut) -> FanOut:
    """`outcome` without the answers that the reducer of `rpc` cannot read: an attached agent may say anything.

    Pure and safe in any thread. Their senders are moved to the failed ones, with the code `bad_result`.
    """
    readable = [answer for answer in outcome.answers if _is_well_formed(rpc, answer)]
    if rpc not in _OF_PARTITIONS and not _can_be_reduced(rpc, readable):
        readable = [answer for answer in readable if _can_be_reduced(rpc, [answer])]
    if len(readable) == len(outcome.answers):
        return outcome
    senders = {answer.sender for answer in readable}
    failed = [
        Failed(answer.sender, "bad_result", "its answer does not have the shape of this command")
        for answer in outcome.answers
        if answer.sender not in senders
    ]
    return FanOut(readable, sorted([*outcome.failed, *failed], key=lambda failure: failure.sender))


def reduced(rpc: str, outcome: FanOut, figures: ClusterFigures | None) -> Reduced:
    """The reduced result with its completeness. Pure, safe in any thread."""
    return completed(REDUCERS[rpc](outcome.answers, figures), outcome)


def completed(result: JsonObject, outcome: FanOut) -> Reduced:
    """A result that was reduced from `outcome`, with its completeness."""
    answered = tuple(answer.sender for answer in outcome.answers)
    return Reduced(
        result=result,
        asked=tuple(sorted([*answered, *(failure.sender for failure in outcome.failed)])),
        answered=answered,
        failed=tuple(outcome.failed),
        age_seconds=max((answer.age_seconds for answer in outcome.answers), default=None),
    )


def _is_well_formed(rpc: str, answer: Answer) -> bool:
    if rpc in _OF_PARTITIONS:
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
