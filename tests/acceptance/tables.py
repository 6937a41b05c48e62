"""Tables that fleets fill in the acceptance tests, read as other programs do: by delta-rs, by pyiceberg."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyiceberg.utils.concurrent import ExecutorFactory

from tests.acceptance.fleets import Fleet

__all__ = ["DeltaLake", "IcebergLake", "Lake", "Places", "lake", "later", "places", "sent"]

NAME = "sales.orders"
LOCKED_SECONDS = 60
"""For so long a process that is frozen in a commit may hold the lock of the catalog's SQLite file."""

Places = Counter[tuple[str, int, int]]
"""How often each topic, partition and offset is in a table."""


class Lake(ABC):
    """A table in a folder."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "orders"

    @abstractmethod
    def settings(self, more: str = "") -> str:
        """Those of `[storage]`, as TOML."""

    @abstractmethod
    def places(self) -> Places: ...

    def dead_letters(self) -> Places:
        """Of the table beside it, which has Delta's format in each case."""
        return places(self.path.with_name("orders_dead_letters"))

    @abstractmethod
    def version(self) -> int:
        """Larger with each commit."""

    def close(self) -> None:  # noqa: B027 - not each holds something open
        """What was opened to read it."""


class DeltaLake(Lake):
    def settings(self, more: str = "") -> str:
        return lake(self.path, more)

    def places(self) -> Places:
        return places(self.path)

    def version(self) -> int:
        return DeltaTable(self.path).version()


class IcebergLake(Lake):
    """With a catalog in a SQLite file beside it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.uri = f"sqlite:///{folder}/catalog.db"
        self._catalog: SqlCatalog | None = None

    def settings(self, more: str = "") -> str:
        return (
            f'mode = "lake"\nformat = "iceberg"\nuri = "{self.path.as_uri()}"\ntable = "{NAME}"\n'
            f'catalog = {{ type = "sql", uri = "{self.uri}" }}\n{more}'
        )

    def table(self) -> Table:
        """As another program has it."""
        self._catalog = self._catalog or SqlCatalog("default", uri=f"{self.uri}?timeout={LOCKED_SECONDS}")
        return self._catalog.load_table(NAME)

    def version(self) -> int:
        return self.table().metadata.last_sequence_number  # type: ignore[union-attr]

    def columns(self, *names: str) -> pa.Table:
        return self.table().scan(selected_fields=names or ("*",)).to_arrow()

    def places(self) -> Places:
        return _counted(self.columns("topic", "partition", "offset"))

    def close(self) -> None:
        if self._catalog is not None:
            self._catalog.close()
        if ExecutorFactory._instance is not None:
            ExecutorFactory._instance.shutdown()
            ExecutorFactory._instance = None


def lake(table: Path, more: str = "") -> str:
    """The settings of `[storage]` of a Delta table, as TOML."""
    return f'mode = "lake"\nuri = "{table.as_uri()}"\n{more}'


def places(table: Path | DeltaTable) -> Places:
    """Of a Delta table."""
    opened = table if isinstance(table, DeltaTable) else DeltaTable(table)
    return _counted(opened.to_pyarrow_table(columns=["topic", "partition", "offset"]))


def _counted(rows: pa.Table) -> Places:
    columns = rows.to_pydict()
    return Counter(zip(columns["topic"], columns["partition"], columns["offset"], strict=True))


def sent(fleet: Fleet) -> Places:
    """Everything that was produced, once."""
    return Counter({(fleet.topic, tp.partition, at): 1 for tp, count in fleet.sent.items() for at in range(count)})


def later(seconds: float) -> Callable[[], bool]:
    """Whether so much time has passed since this call."""
    at = time.monotonic() + seconds
    return lambda: time.monotonic() >= at
