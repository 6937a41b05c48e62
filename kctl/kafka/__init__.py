"""Questions and changes to Kafka clusters: polls of groups (`cluster_reader` reads, `broker_cache` keeps what a master
has read of its own) and `kctl kafka`, over `connection`."""

from __future__ import annotations

__all__: list[str] = []
