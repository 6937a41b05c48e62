"""The time lag of waiting messages, by Kafka's timestamp of the last processed record, and by the log's growth.

Both are bounds from above, and the smaller is taken. The timestamp alone would give an hour when, after an hour of
silence, one message arrives; the log alone is not enough at the start over a backlog.
"""

from __future__ import annotations

import numpy as np

from kctl.status.history import ABSENT
from kctl.status.observations import Ints, Reals, Rows


class Processed:
    """The last record that was stored of each of many partitions, and between which offsets a committed offset may lie
    for it to be the last."""

    def __init__(self, size: int) -> None:
        self.timestamp: Reals = np.broadcast_to(np.float64(np.nan), size)
        """Unix seconds, Kafka's; NaN where it is not known. As the others of no size in memory until there are some: of
        other clients' groups there are none."""
        self._committed: Ints = np.broadcast_to(np.int64(0), size)
        self._position = self._committed

    def choose(self, rows: Rows) -> None:
        """Moves partitions: from now on they are `rows` of those so far, in this order; -1 is a new one."""
        is_old = rows >= 0
        for name, fill in vars(Processed(len(rows))).items():
            column = getattr(self, name)
            chosen = fill.copy() if column.flags.writeable else fill
            if column.flags.writeable:
                chosen[is_old] = column[rows[is_old]]
            setattr(self, name, chosen)

    def add(self, timestamp: Reals, position: Ints, committed: Ints) -> None:
        """Takes in the last processed record; where nothing was reported (its worker is gone, or new), what was known
        before stays as long as the committed offset does not contradict it."""
        is_reported = ~np.isnan(timestamp) & (position != ABSENT)
        at_most = np.where(committed == ABSENT, position, np.minimum(committed, position))
        is_agreed = (committed != ABSENT) & (self._committed <= committed) & (committed <= self._position)
        self.timestamp = np.where(is_reported, timestamp, np.where(is_agreed, self.timestamp, np.nan))
        self._committed = np.where(is_reported, at_most, self._committed)
        self._position = np.where(is_reported, position, self._position)


def lag_seconds(lag: Ints, timestamp: Reals, caught_up_at: Reals, now: float, now_unix: float) -> Reals:
    """The time lag; 0 when nothing waits, NaN when it is not known. A timestamp of the future counts for nothing."""
    of_record = np.where(timestamp <= now_unix, now_unix - timestamp, np.nan)
    bound = np.fmin(now - caught_up_at, of_record)
    return np.where(lag == 0, 0.0, np.where(lag == ABSENT, np.nan, bound))
