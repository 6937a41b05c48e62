"""An Iceberg table as storage, without Spark: files of batches are written by pyarrow here."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.table import Table
from pyiceberg.utils.concurrent import ExecutorFactory

from kctl_agent.storage.base import Advance, Binding, StoredOffset
from kctl_agent.storage.lake import IcebergStorage, LakeBatch
from kctl_agent.storage.lake.folder import LocalFolder

GROUP = Binding("payments/eu", "cluster-1")
TOPIC_ID = "f3a1b2c3-d4e5-46f7-98a9-0b1c2d3e4f5a"
TP = ("t", 0)
NAME = "sales.orders"
FIELDS: tuple[tuple[str, Any], ...] = (
    ("topic", "string"),
    ("partition", "integer"),
    ("offset", "long"),
    ("timestamp", "timestamp"),
)


def schema(*fields: tuple[str, Any]) -> str:
    """As Spark writes it."""
    return json.dumps(
        {"type": "struct", "fields": [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in fields]}
    )


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


def begun(storage: IcebergStorage, start: int, end: int, version: int = 1) -> LakeBatch:
    """A batch whose file is written."""
    batch = storage.begin([Advance(*TP, version, start, end)])
    written(batch, start, end)
    return batch


def folder_of(batch: LakeBatch) -> Path:
    assert batch.folder.local is not None
    return batch.folder.local


def written(batch: LakeBatch, start: int, end: int) -> None:
    offsets = [at for at in range(start, end) if at >= batch.below[TP]]
    folder_of(batch).mkdir()
    pq.write_table(rows(offsets), folder_of(batch) / "part-0.parquet")


def rows(offsets: Sequence[int]) -> pa.Table:
    return pa.table(
        {
            "topic": pa.array(["t"] * len(offsets)),
            "partition": pa.array([0] * len(offsets), pa.int32()),
            "offset": pa.array(offsets, pa.int64()),
            "timestamp": pa.array([at * 1_000 for at in offsets], pa.timestamp("us", "UTC")),
        }
    )


def at(storage: IcebergStorage) -> StoredOffset | None:
    return storage.stored_offsets([TP]).get(TP)
