"""`--fail-above N`: is a value of a result too high? For cron jobs and checks that only look at the exit code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kctl.errors import IncompleteAnswer, ThresholdExceeded

__all__ = ["THRESHOLDS", "check"]

Values = list[int | None]

THRESHOLDS: dict[str, tuple[str, Callable[[dict[str, Any]], Values]]] = {
    "kafka_lag": ("the total lag", lambda result: [result["total"], *(None for _ in result["unknown"])]),
    "offset_checker": ("a remaining-count", lambda result: [row["remaining_count"] for row in result["rows"]]),
    "block_size": ("the number of pending messages", lambda result: [result["pending"]]),
}
"""Per command: what is compared, in words, and its values; None is a value that is not known."""


def check(command: str, result: dict[str, Any], limit: int) -> None:
    """Compare the values of a result with the limit.

    Raises:
        ThresholdExceeded: one is above it.
        IncompleteAnswer: none of those known is, but not all are known: that must not pass for "all is well".
    """
    what, values_of = THRESHOLDS[command]
    values = values_of(result)
    highest = max((value for value in values if value is not None), default=None)
    if highest is not None and highest > limit:
        raise ThresholdExceeded(f"{what} is {highest}, above {limit}")
    if highest is None or None in values:
        raise IncompleteAnswer(f"it is not known whether {what} is above {limit}: not all values are known")
