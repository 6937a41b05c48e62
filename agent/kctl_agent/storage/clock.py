"""The clock that leases and delays of a file storage are measured on."""

from __future__ import annotations

import time
from pathlib import Path


class MachineClock:
    """Seconds since this machine was booted, suspension included, and which boot that was. Setting the wall clock does
    not move it; after a boot all owners are dead, and their leases void."""

    def now(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def boot_id(self) -> str:
        """Containers of one machine share it, as they share the clock (random(4))."""
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()

    def wall(self) -> float:
        """Unix seconds, for ages that people read."""
        return time.time()
