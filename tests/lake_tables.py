"""Small Delta tables as storages, without Spark: pyarrow writes the files of batches."""

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from kctl_agent.storage.chunk import Advance, Binding, StoredOffset
from kctl_agent.storage.lake.dead_letters.table import DeadLetterTable
from kctl_agent.storage.lake.delta import table
from kctl_agent.storage.lake.delta.files import Written
from kctl_agent.storage.lake.delta.log import write_entry
from kctl_agent.storage.lake.folder import Folder, LocalFolder
from kctl_agent.storage.lake.storage import LakeStorage
from kctl_agent.storage.lake.table_storage import LakeBatch
from kctl_agent.storage.selection import Selection
from tests import table_conformance
from tests.conformance.given import TOPIC_ID
from tests.table_conformance import DEAD_LETTER_SCHEMA, GROUP, ROW, TYPES, dead_rows, write

__all__ = ["GROUP", "TOPIC_ID"]

TP = ("t", 0)
NOW = datetime.now(UTC)
COLUMNS = ROW.remove(ROW.get_field_index("value"))
FIELDS: tuple[tuple[str, Any], ...] = tuple((column.name, TYPES[column.type]) for column in COLUMNS)


def schema(*fields: tuple[str, object]) -> str:
    return json.dumps(
        {"type": "struct", "fields": [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in fields]}
    )


def opened(
    path: Path, owner: Binding = GROUP, columns: str | None = None, start: int | None = None, **options: Any
) -> LakeStorage:
    """With a `start`, the table has it as the stored offset of `TP`."""
    storage = LakeStorage(LocalFolder(path), **options)
    storage.prepare()
    storage.fit(columns or schema(*FIELDS))
    storage.bind(owner)
    if start is not None:
        storage.init_offsets([StoredOffset(*TP, TOPIC_ID, start)])
    return storage


def begun(storage: LakeStorage, start: int, end: int, version: int = 1) -> LakeBatch:
    batch = storage.begin([Advance(*TP, version, start, end)])
    batch.folder.make()
    write(batch.folder, rows(range(max(start, batch.below[TP]), end)))
    return batch


def filled(batch: LakeBatch, rows: pa.Table, folder: str = "", **options: Any) -> Path:
    file = Path(batch.folder.uri, folder, "part-0.parquet")
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, file, **options)
    return file


def reported(folder: Folder, rows: int) -> Written:
    return Written(rows, frozenset(file.name for file in folder.files()))


def rows(offsets: Sequence[int]) -> pa.Table:
    return pa.Table.from_pylist(table_conformance.rows(TP, offsets), COLUMNS)


def offsets(path: Path) -> list[int]:
    return sorted(DeltaTable(path).to_pyarrow_table(columns=["offset"])["offset"].to_pylist())


def at(storage: LakeStorage) -> StoredOffset | None:
    return storage.stored_offsets([TP]).get(TP)


def before_the_write(monkeypatch: pytest.MonkeyPatch, change: Callable[[], object]) -> None:
    """Runs `change` once, between the check and the write of the next commit."""
    waiting = [change]

    def overtaken(*args: Any) -> bytes | None:
        if waiting:
            waiting.pop()()
        return write_entry(*args)

    monkeypatch.setattr(table, "write_entry", overtaken)


def written(
    table: DeadLetterTable,
    batch: LakeBatch,
    offsets: Sequence[int],
    at: datetime | Sequence[datetime] = NOW,
    **more: Any,
) -> LakeBatch:
    """Writes dead letters as an executor does. `more` are columns of all of them."""
    earlier = table.earlier_try(batch)
    dead_letters = table.begin(batch, DEAD_LETTER_SCHEMA, earlier)
    offsets = [offset for offset in offsets if (*TP, offset) not in earlier.messages]
    times = [at] * len(offsets) if isinstance(at, datetime) else at
    dead_letters.folder.make()
    write(dead_letters.folder, dead_rows(table, batch, TP, offsets, "no JSON", times, **more))
    return dead_letters


def dead(table: DeadLetterTable, selection: Selection | None = None) -> list[int]:
    return sorted(each.offset for each in table.dead(selection or Selection()))
