from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pyarrow as pa


class Frame:
    def __init__(self, *batches: pa.RecordBatch) -> None:
        self._batches = batches

    sparkSession = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=2))  # noqa: N815 - Spark's name

    def selectExpr(self, *_: str) -> Frame:  # noqa: N802
        return self

    def mapped(self, task: Callable[[Iterator[Any]], Iterator[Any]], _schema: str) -> Any:
        rows = [SimpleNamespace(**row) for result in task(iter(self._batches)) for row in result.to_pylist()]
        return SimpleNamespace(collect=lambda: rows)


class Query:
    isActive = True  # noqa: N815 - Spark's name

    def __init__(self) -> None:
        self.stops = 0

    def stop(self) -> None:
        self.stops += 1

    def exception(self) -> None:
        return None


def arrow(
    offsets: list[int], topics: list[int | None] | None = None, partitions: list[int] | None = None
) -> pa.RecordBatch:
    count = len(offsets)
    columns = {
        "topic": pa.array(topics or [0] * count, pa.int32()),
        "partition": pa.array(partitions or [0] * count, pa.int32()),
        "offset": pa.array(offsets, pa.int64()),
        "timestamp_ms": pa.array([offset * 10 for offset in offsets], pa.int64()),
        "key": pa.nulls(count, pa.binary()),
        "value": pa.array([b"v%d" % offset for offset in offsets]),
        "headers": pa.nulls(count, pa.binary()),
    }
    return pa.RecordBatch.from_pydict(columns)
