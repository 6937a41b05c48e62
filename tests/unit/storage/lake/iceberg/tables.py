"""An Iceberg table as storage, without Spark: files of batches are written by pyarrow here."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.table import Table
from pyiceberg.utils.concurrent import ExecutorFactory

from kctl_agent.storage.base import Binding, StoredOffset
from kctl_agent.storage.lake import IcebergStorage, LakeBatch
from kctl_agent.storage.lake.folder import LocalFolder
from tests.unit.storage.lake.test_storage import FIELDS, GROUP, TOPIC_ID, TP, schema

NAME = "sales.orders"


class Lake:
    def __init__(self, folder: Path, **catalog: str) -> None:
        """By default the catalog is a SQLite file in the folder."""
        self.folder = folder
        self.path = folder / "orders"
        self.properties = catalog or {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db"}
        self._open: list[IcebergStorage | Catalog] = []

    def storage(self, **more: Any) -> IcebergStorage:
        made = IcebergStorage(LocalFolder(self.path), NAME, self.properties, **more)
        self._open.append(made)
        return made

    def opened(self, owner: Binding = GROUP, fields: Sequence[tuple[str, Any]] = FIELDS, **more: Any) -> IcebergStorage:
        made = self.storage(**more)
        made.prepare()
        made.fit(schema(*fields))
        made.bind(owner)
        return made

    def begun_at(self, at: int = 100) -> IcebergStorage:
        """A table with a stored offset."""
        made = self.opened()
        made.init_offsets([StoredOffset(*TP, TOPIC_ID, at)])
        return made

    @property
    def catalog(self) -> Catalog:
        """As another program has it."""
        made = load_catalog("default", **self.properties)
        self._open.append(made)
        return made

    def table(self) -> Table:
        return self.catalog.load_table(NAME)

    def offsets(self) -> list[int]:
        return sorted(self.table().scan(selected_fields=("offset",)).to_arrow()["offset"].to_pylist())

    def close(self) -> None:
        for each in self._open:
            each.close()
        if ExecutorFactory._instance is not None:
            ExecutorFactory._instance.shutdown()
            ExecutorFactory._instance = None


def folder_of(batch: LakeBatch) -> Path:
    assert batch.folder.local is not None
    return batch.folder.local
