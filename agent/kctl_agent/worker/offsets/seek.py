"""The plan of a seek: the new position, and the offsets that it skips or reads again. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kctl_agent.errors import BadParams
from kctl_agent.rpc.wire import JsonObject
from kctl_agent.worker.offsets.positions import Found


@dataclass(frozen=True, slots=True)
class SeekPlan:
    topic: str
    partition: int
    position: int | None
    target: int

    @property
    def skipped(self) -> int:
        return max(self.target - self.position, 0) if self.position is not None else 0

    @property
    def again(self) -> int:
        return max(self.position - self.target, 0) if self.position is not None else 0

    @property
    def sentence(self) -> str:
        where = f"{self.topic}-{self.partition}"
        if self.position is None:
            return f"{where}: goes on at {self.target}"
        if self.skipped:
            return f"{where}: from {self.position} forward to {self.target}; {_offsets(self.skipped)} skipped"
        if self.again:
            return f"{where}: from {self.position} back to {self.target}; {_offsets(self.again)} handled again"
        return f"{where}: is at {self.target} already"

    def to_json(self) -> JsonObject:
        return {
            "topic": self.topic,
            "partition": self.partition,
            "from": self.position,
            "to": self.target,
            "skipped": self.skipped,
            "again": self.again,
        }


def plan(to: str, found: Found, position: int | None, offset_at: Callable[[int], int | None]) -> SeekPlan:
    """`to`: `earliest`, `latest`, an offset, or `@` and milliseconds since 1970 (the first record not older, or the end
    of the log). Raises BadParams, also for an offset outside the log."""
    begin, end = found.log_start, found.log_end
    if to in ("earliest", "latest"):
        target = begin if to == "earliest" else end
    elif to.startswith("@") and (milliseconds := _number(to[1:])) is not None:
        at = offset_at(milliseconds)
        target = end if at is None else at
    elif (offset := _number(to)) is not None:
        target = offset
    else:
        raise BadParams("a seek goes to earliest, latest, an offset, or @milliseconds")
    if not begin <= target <= end:
        raise BadParams(
            f"{found.topic}-{found.partition} has offsets from {begin} to {end}, {target} is not among them"
        )
    return SeekPlan(found.topic, found.partition, position, target)


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() and len(text) < 20 and int(text) < 2**63 else None


def _offsets(count: int) -> str:
    return "1 offset is" if count == 1 else f"{count} offsets are"
