"""`--fail-above N`: is a value of a result too high? For cron jobs and checks that only read the exit code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from kctl.errors import IncompleteAnswer, ThresholdExceeded

if TYPE_CHECKING:
    from kctl.rows.lag import LagTotals
    from kctl.rows.offsets import Offsets
    from kctl_agent.replies.block_size import StorageReply

Values = Sequence[int | None]


def _total_lag(lag: LagTotals) -> Values:
    return [lag.total, *([None] if lag.unknown else [])]


def _remaining_counts(offsets: Offsets) -> Values:
    return [row.remaining_count for row in offsets.rows]


def _pending(storage: StorageReply) -> Values:
    return [storage.pending]


THRESHOLDS: dict[str, tuple[str, Callable[[Any], Values]]] = {
    "kafka_lag": ("the total lag", _total_lag),
    "offset_checker": ("a remaining-count", _remaining_counts),
    "block_size": ("the number of pending messages", _pending),
}
"""Per command: what is compared, in words, and its values; None is a value that is not known."""


def check(command: str, result: Any, limit: int) -> None:
    """Compare the values of a result with the limit. Raises ThresholdExceeded: one is above it; IncompleteAnswer: none
    of those known is, but not all are known: that must not pass for "all is well"."""
    what, values_of = THRESHOLDS[command]
    values = values_of(result)
    highest = max((value for value in values if value is not None), default=None)
    if highest is not None and highest > limit:
        raise ThresholdExceeded(f"{what} is {highest}, above {limit}")
    if highest is None or None in values:
        raise IncompleteAnswer(f"it is not known whether {what} is above {limit}: not all values are known")
