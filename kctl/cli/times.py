"""Times and ages as every view prints them: UTC, as JSON has them too, and `12s`, `3m05s`."""

from __future__ import annotations

import time

__all__ = ["duration", "moment"]


def moment(unix_seconds: float) -> str:
    """`2026-11-22T10:04:02Z`: the same on every host, and what `--to` and `--time` take."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(unix_seconds))


def duration(seconds: float | None) -> str | None:
    """`45s`, `12m30s`, `3h05m`, `2d04h`."""
    if seconds is None:
        return None
    whole = int(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02}m"
    return f"{whole // 86400}d{whole % 86400 // 3600:02}h"
