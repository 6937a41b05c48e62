"""The brokers' own view of the group: `admin` asks (blocking, one thread), `cluster` keeps the last figures."""

from __future__ import annotations

__all__: list[str] = []
