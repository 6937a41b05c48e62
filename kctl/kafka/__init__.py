"""Questions and changes to Kafka clusters: for the master (`group_reader` reads, `broker_cache` keeps what it read) and
for `kctl kafka`, over `connection`."""

from __future__ import annotations

__all__: list[str] = []
