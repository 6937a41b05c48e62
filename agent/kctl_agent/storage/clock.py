"""The clock that leases and delays of a file storage are measured on."""

from __future__ import annotations

import time
from pathlib import Path

__all__ = ["MachineClock"]


class MachineClock:
    """Seconds since this machine was booted, suspension included, and which boot that was.

    Setting the wall clock does not move it. After a boot all owners are dead: their leases are void whatever the time,
    so it does no harm that the count begins anew.
    """

    def now(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def boot_id(self) -> str:
        """Containers of one machine share it, as they share the clock (random(4))."""
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()

    def wall(self) -> float:
        """Unix seconds, for ages that people read."""
        return time.time()
