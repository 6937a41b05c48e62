"""Mode `lake` with `format = "iceberg"`: batches become files of an Iceberg table."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from kctl_agent.storage.base import StorageUnusable
from kctl_agent.storage.lake.counts import COUNT_SECONDS
from kctl_agent.storage.lake.folder import Folder
from kctl_agent.storage.lake.iceberg.table import IcebergTable
from kctl_agent.storage.lake.storage import LakeStorage, TableStorage
from kctl_agent.storage.room import TableCounts

__all__ = ["IcebergStorage"]


class IcebergStorage(TableStorage):
    """An Iceberg table; its dead letters are a Delta table beside it, for they are changed row by row."""

    table: IcebergTable

    def __init__(
        self, folder: Folder, name: str, catalog: Mapping[str, str], *, is_expiring: bool = True, **more: Any
    ) -> None:
        table = IcebergTable(folder, name, catalog, is_expiring=is_expiring)
        super().__init__(table, IcebergCounter(table), **more)

    def check_folders(self) -> None:
        self.table.check_folders()

    def count(self) -> TableCounts:
        return self.table.counts()

    def tables(self) -> list[LakeStorage]:
        return [self.beside()] if self._dead_letters.exists() else []

    def close(self) -> None:
        self.table.close()


class IcebergCounter:
    """See `lake.base.Counter`."""

    def __init__(self, table: IcebergTable) -> None:
        self._table = table
        self._last: TableCounts | None = None
        self._next_at = 0.0

    def last(self) -> TableCounts | None:
        if (now := time.monotonic()) >= self._next_at:
            self._next_at = now + COUNT_SECONDS
            try:
                self._last = self._table.counts()
            except StorageUnusable:  # the next batch reports it
                self._last = None
        return self._last
