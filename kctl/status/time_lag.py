"""How long what waits has waited: from Kafka's timestamp of the last processed record, and from the log's growth.

Both are bounds from above, and the smaller is taken. The timestamp alone would give an hour when, after an hour of
silence, one message arrives; the log alone is not enough at the start over a backlog.
"""

from __future__ import annotations

from dataclasses import dataclass

from kctl.reduce import PartitionRow

__all__ = ["Processed", "lag_seconds", "remembered"]


@dataclass(frozen=True, slots=True)
class Processed:
    """The last record that was stored, and between which offsets a committed offset may lie for it to be the last."""

    timestamp: float
    """Unix seconds, Kafka's."""
    committed: int
    position: int


def remembered(before: Processed | None, row: PartitionRow) -> Processed | None:
    """What `row` has of the last processed record; if it has nothing (its worker is gone, or new), what was known
    before, as long as the committed offset does not contradict it."""
    if row.last_timestamp is not None and row.position is not None:
        committed = row.position if row.committed is None else row.committed
        return Processed(row.last_timestamp, min(committed, row.position), row.position)
    if before is None or row.committed is None or not before.committed <= row.committed <= before.position:
        return None
    return before


def lag_seconds(
    lag: int | None, processed: Processed | None, caught_up_seconds_ago: float | None, now_unix: float
) -> float | None:
    """0 when nothing waits, None when it is not known. A timestamp of the future counts for nothing."""
    if lag is None:
        return None
    if lag == 0:
        return 0.0
    bounds = [] if caught_up_seconds_ago is None else [caught_up_seconds_ago]
    if processed is not None and processed.timestamp <= now_unix:
        bounds.append(now_unix - processed.timestamp)
    return min(bounds, default=None)
