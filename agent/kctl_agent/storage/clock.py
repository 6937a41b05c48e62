"""The clock for the leases and delays of a file storage."""

from __future__ import annotations

import time
from pathlib import Path


class MachineClock:
    """Seconds since boot, including suspend. Setting the wall clock does not move them."""

    def now(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def boot_id(self) -> str:
        """Containers of one machine share it, as they share the clock (random(4))."""
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()

    def wall(self) -> float:
        return time.time()
