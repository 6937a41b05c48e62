"""Dead letters as an executor writes them, without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from kctl_agent.storage.lake.dead_letters.table import DeadLetterTable
from kctl_agent.storage.lake.table_storage import LakeBatch
from kctl_agent.storage.selection import Selection
from tests.lake_tables import GROUP, TP, schema

HEADER = {
    "type": "struct",
    "fields": [
        {"name": "key", "type": "string", "nullable": True, "metadata": {}},
        {"name": "value", "type": "binary", "nullable": True, "metadata": {}},
    ],
}
FIELDS = (
    ("cluster", "string"), ("group", "string"), ("topic", "string"), ("partition", "integer"), ("offset", "long"),
    ("timestamp", "timestamp"), ("timestampType", "integer"), ("key", "binary"), ("value", "binary"),
    ("headers", {"type": "array", "elementType": HEADER, "containsNull": True}),
    ("error", "string"), ("failed_at", "timestamp"), ("tries", "integer"), ("requeue", "long"), ("reading", "string"),
)  # fmt: skip
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
NOW = datetime.now(UTC)


def written(
    table: DeadLetterTable,
    batch: LakeBatch,
    offsets: Sequence[int],
    group: str = GROUP.group,
    cluster: str | None = GROUP.cluster_id,
    at: datetime | list[datetime] = NOW,
    timestamp: int | datetime = datetime(2026, 1, 2, tzinfo=UTC),
) -> LakeBatch:
    earlier = table.earlier_try(batch)
    dead_letters = table.begin(batch, schema(*FIELDS), earlier)
    offsets = [offset for offset in offsets if (*TP, offset) not in earlier.messages]
    many = len(offsets)
    Path(dead_letters.folder.uri).mkdir()
    columns = {
        "cluster": pa.array([cluster] * many),
        "group": pa.array([group] * many),
        "topic": pa.array(["t"] * many),
        "partition": pa.array([0] * many, pa.int32()),
        "offset": pa.array(offsets, pa.int64()),
        "timestamp": pa.array([timestamp] * many, pa.timestamp("us", "UTC")),
        "timestampType": pa.array([0] * many, pa.int32()),
        "key": pa.array([None] * many, pa.binary()),
        "value": pa.array([b"\xff %d" % offset for offset in offsets]),
        "headers": pa.array([[{"key": "h", "value": None}]] * many, HEADERS),
        "error": pa.array(["no JSON"] * many),
        "failed_at": pa.array(at if isinstance(at, list) else [at] * many, pa.timestamp("us", "UTC")),
        "tries": pa.array([1] * many, pa.int32()),
        "requeue": pa.array([None] * many, pa.int64()),
        "reading": pa.array([table.reading(batch, TP)] * many, pa.string()),
    }
    pq.write_table(pa.table(columns), Path(dead_letters.folder.uri) / "part-0.parquet")
    return dead_letters


def dead(table: DeadLetterTable, selection: Selection | None = None) -> list[int]:
    return sorted(each.offset for each in table.dead(selection or Selection()))
