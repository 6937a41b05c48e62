"""Stores messages in a table for the conformance suite, with pyarrow's files in place of Spark's.

A module that runs it has a fixture `open_table` for another instance of the same table, bound to `GROUP`.
"""

import io
import json
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from kctl_agent.storage.chunk import Advance, Binding, Chunk, Put, StoredOffset, StoredOffsetMissing, TopicPartition
from kctl_agent.storage.lake.dead_letters.selection import READING
from kctl_agent.storage.lake.dead_letters.table import DeadLetterTable
from kctl_agent.storage.lake.delta.table import LakeTable
from kctl_agent.storage.lake.folder import Folder
from kctl_agent.storage.lake.maintenance.compaction import Compacted, Compaction
from kctl_agent.storage.lake.table_storage import TableStorage
from tests.conformance import Dead, StoredOffsets
from tests.conformance.dead import ERROR
from tests.conformance.given import TOPIC_ID, chunk

GROUP = Binding("payments/eu", "cluster-1")
ROW = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("value", pa.binary()),
    ]
)
TYPES = {
    pa.string(): "string",
    pa.int32(): "integer",
    pa.int64(): "long",
    pa.timestamp("us", "UTC"): "timestamp",
    pa.binary(): "binary",
}
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
DEAD_LETTER = pa.schema(
    [
        ("cluster", pa.string()),
        ("group", pa.string()),
        *ROW,
        ("timestampType", pa.int32()),
        ("key", pa.binary()),
        ("headers", HEADERS),
        ("error", pa.string()),
        ("failed_at", pa.timestamp("us", "UTC")),
        ("tries", pa.int32()),
        ("requeue", pa.int64()),
        (READING, pa.string()),
    ]
)
OpenTable = Callable[[], TableStorage]


def compact(
    lake: LakeTable, target_file_bytes: int = 128 << 20, progress: Callable[[int], None] = lambda _: None
) -> Compacted:
    compaction = Compaction(lake)
    return compaction.run(compaction.small_files(target_file_bytes), progress)


def spark_schema(columns: pa.Schema) -> str:
    return json.dumps(_of_fields(columns))


def _of_fields(columns: Iterable[pa.Field]) -> dict[str, Any]:
    fields = [{"name": each.name, "type": _type(each.type), "nullable": True, "metadata": {}} for each in columns]
    return {"type": "struct", "fields": fields}


def _type(kind: pa.DataType) -> Any:
    if pa.types.is_list(kind):
        return {"type": "array", "elementType": _type(kind.value_type), "containsNull": True}
    return _of_fields(kind) if pa.types.is_struct(kind) else TYPES[kind]


DEAD_LETTER_SCHEMA = spark_schema(DEAD_LETTER)


def opened(storage: TableStorage) -> TableStorage:
    storage.prepare()
    storage.fit(spark_schema(ROW))
    storage.bind(GROUP)
    return storage


def rows(tp: TopicPartition, offsets: Sequence[int]) -> list[dict[str, Any]]:
    """These messages of `conformance.given.chunk`, except for times outside a timestamp's range."""
    return [
        {"topic": tp[0], "partition": tp[1], "offset": at, "timestamp": at % 2**32 * 10_000, "value": b"%04d" % at}
        for at in offsets
    ]


def dead_rows(
    table: DeadLetterTable,
    batch: Any,
    tp: TopicPartition,
    offsets: Sequence[int],
    error: str = ERROR,
    at: Sequence[datetime] = (),
    **more: Any,
) -> pa.Table:
    """`at` are the times of their failures, now by default."""
    of_all = {
        "cluster": GROUP.cluster_id,
        "group": GROUP.group,
        "error": error,
        "tries": 1,
        READING: table.reading(batch, tp),
        **more,
    }
    times = at or [datetime.now(UTC)] * len(offsets)
    found = zip(rows(tp, offsets), times, strict=True)
    return pa.Table.from_pylist([row | of_all | {"failed_at": time} for row, time in found], DEAD_LETTER)


def write(folder: Folder, rows: pa.Table) -> None:
    content = io.BytesIO()
    pq.write_table(rows, content)
    folder.write("part-0.parquet", content.getvalue())


def read(storage: TableStorage) -> pa.Table:
    return DeltaTable(storage.folder.uri, storage_options=storage.folder.options).to_pyarrow_table()


class OfTable:
    @pytest.fixture(autouse=True)
    def take(self, open_table: OpenTable) -> None:
        self._open_table = open_table

    @pytest.fixture
    def storage(self, open_table: OpenTable) -> TableStorage:
        return open_table()

    def reopened(self, _: TableStorage) -> TableStorage:
        return self._open_table()


class TableOffsets(OfTable, StoredOffsets[TableStorage]):
    def plan(self, storage: TableStorage, chunk: Chunk) -> Callable[[], Put]:
        batch = storage.begin([Advance(*chunk.tp, chunk.version, chunk.start, chunk.end)])
        offsets = [int(each) for each in chunk.columns.offsets]
        new = [each for each in offsets if each >= batch.below[chunk.tp]]
        batch.folder.make()
        if new:
            write(batch.folder, pa.Table.from_pylist(rows(chunk.tp, new), ROW))

        def commit() -> Put:
            batch.commit()
            return Put(len(new), len(offsets) - len(new), 0)

        return commit

    def stored(self, storage: TableStorage) -> list[int]:
        return sorted(read(storage)["offset"].to_pylist())

    def test_groups_and_clusters_have_stored_offsets_of_their_own(self, storage: TableStorage) -> None:
        # Replaces the suite's test of a binding to one group, because several groups may fill a table.
        storage.init_offsets([StoredOffset("t", 0, TOPIC_ID, 0)])
        owners = [Binding("payments", "cluster-1"), Binding(GROUP.group, "cluster-2")]
        for owner in owners:
            other = self.reopened(storage)
            other.bind(owner)
            with pytest.raises(StoredOffsetMissing):
                self.plan(other, chunk(0, 3))
            other.init_offsets([StoredOffset("t", 0, None, 7)])

        self.put(storage, chunk(0, 3))

        assert storage.stored_offsets([("t", 0)]) == {("t", 0): StoredOffset("t", 0, TOPIC_ID, 3, 1)}
        assert storage.group_offsets("payments") == [(owners[0], StoredOffset("t", 0, None, 7, 1))]


class TableDead(OfTable, Dead[TableStorage]):
    def dead_letters(self, storage: TableStorage) -> DeadLetterTable:
        return DeadLetterTable(storage, GROUP.group)

    def expired(self, storage: TableStorage) -> int:
        return DeadLetterTable(storage, GROUP.group).expire()

    def kill(self, storage: TableStorage, count: int, partition: int = 0, error: str = ERROR) -> None:
        tp, table = ("t", partition), self.dead_letters(storage)
        storage.init_offsets([StoredOffset(*tp, TOPIC_ID, 0)])
        batch = storage.begin([Advance(*tp, 1, 0, count)])
        dead_letters = table.begin(batch, DEAD_LETTER_SCHEMA, table.earlier_try(batch))
        dead_letters.folder.make()
        write(dead_letters.folder, dead_rows(table, batch, tp, range(count), error))
        dead_letters.commit()
        batch.folder.make()  # without rows
        batch.commit()

    def again(self, storage: TableStorage) -> list[tuple[int, bytes | None]]:
        table = self.dead_letters(self.reopened(storage))
        batch = table.requeues.next()
        assert batch is not None
        found = read(table.storage).to_pylist()
        wanted = [row for row in found if batch.state.stored < (row["requeue"] or 0) <= batch.state.requested]
        batch.folder.make()
        write(batch.folder, pa.Table.from_pylist([{name: row[name] for name in ROW.names} for row in wanted], ROW))
        batch.commit()
        return sorted((row["offset"], row["value"]) for row in read(storage).to_pylist())
