"""Tables that fleets fill in the acceptance tests, read as other programs do: by delta-rs."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable

from tests.acceptance.fleets import Fleet

__all__ = ["Lake", "Places", "lake", "later", "places", "sent"]

Places = Counter[tuple[str, int, int]]
"""How often each topic, partition and offset is in a table."""


class Lake:
    """A table in a folder."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "orders"

    def settings(self, more: str = "") -> str:
        """Those of `[storage]`, as TOML."""
        return lake(self.path, more)

    def places(self) -> Places:
        return places(self.path)

    def dead_letters(self) -> Places:
        return places(self.path.with_name("orders_dead_letters"))

    def version(self) -> int:
        """Larger with each commit."""
        return DeltaTable(self.path).version()


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
