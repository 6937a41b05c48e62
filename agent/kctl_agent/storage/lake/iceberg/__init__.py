"""An Iceberg table as storage, by way of pyiceberg."""

from __future__ import annotations

from kctl_agent.storage.lake.iceberg.storage import IcebergStorage

__all__ = ["IcebergStorage"]
