"""The capacity of one process, by least squares over its batches: seconds = fixed + rows * seconds per row. Pure."""

from __future__ import annotations

from math import sqrt
from typing import NamedTuple

import numpy as np

from kctl.rows.columns import Reals

_LEAST_BATCHES = 5
_FULL = 0.8
"""If the average batch has at least this share of the rows of a full one, its rate counts as that of a full batch."""
_MOST_ERROR = 0.2
"""The relative standard error above which the time of a full batch counts as unknown."""


def moments(batches: int, rows: int, seconds: float) -> Reals:
    """Returns the sums over batches of which only the totals are known, as if all were equal: their number, rows,
    seconds, rows², rows * seconds, and seconds². Sums of several such arrays can be added."""
    return np.array([batches, rows, seconds, rows**2 / batches, rows * seconds / batches, seconds**2 / batches])


class Capacity(NamedTuple):
    per_second: float | None
    """The messages that one process can do per second, in full batches; None: unknown."""
    reason: str = ""
    """Why it is unknown."""


def capacity(seen: Reals, full_batch: int) -> Capacity:
    """Estimates the capacity with full batches from the moments of the batches seen."""
    n = float(seen[0])
    if n < _LEAST_BATCHES or not seen[2]:
        return Capacity(None, f"fewer than {_LEAST_BATCHES} batches with messages have ended")
    _, rows, seconds, rows_rows, rows_seconds, seconds_seconds = (seen / n).tolist()
    if rows >= _FULL * full_batch:
        return Capacity(rows / seconds)
    spread = max(rows_rows - rows**2, 0.0)
    together = rows_seconds - rows * seconds
    per_row = max(together / spread, 0.0) if spread else 0.0
    if per_row * rows > seconds:  # the fixed time of a batch cannot be negative
        per_row = seconds / rows
    full = seconds + per_row * (full_batch - rows)
    left = max(seconds_seconds - seconds**2 - 2 * per_row * together + per_row**2 * spread, 0.0) * n / (n - 2)
    error = sqrt(left * (1 / n + ((full_batch - rows) ** 2 / (n * spread) if spread else 0.0)))
    if not spread or error > _MOST_ERROR * full:
        return Capacity(None, f"all batches had about {rows:,.0f} rows, so the time of a full batch is unknown")
    return Capacity(full_batch / full)
