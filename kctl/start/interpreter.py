"""Settings of a master's Python interpreter."""

from __future__ import annotations

import gc
import sys


def tune_interpreter() -> None:
    """Tunes the interpreter for a loop that answers while a thread makes a snapshot of thousands of partitions."""
    # The loop must not wait 5 ms for the interpreter each time it has let go of it.
    sys.setswitchinterval(0.001)
    # Snapshots are many objects without cycles; to search them for cycles holds everything up. So rarely, and
    # never through many at once: 20 instead of 2 was 200,000 objects, 60 ms. With 100,000 instead of 10,000, what
    # callers leave behind grew by 43 MB before it was collected (test_hostile_frames_master).
    gc.set_threshold(10_000, 2, 200)
