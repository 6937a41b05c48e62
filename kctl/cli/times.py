"""Ages as every view prints them: `12s`, `3m05s`."""

from __future__ import annotations


def duration(seconds: float | None) -> str | None:
    """Formats a duration: `45s`, `12m30s`, `3h05m`, `2d04h`."""
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
