"""Questions and changes to Kafka clusters: what `kctl kafka` asks and does, and `polls` of groups for a master."""

from __future__ import annotations

__all__: list[str] = []
