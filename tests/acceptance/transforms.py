"""Transforms that the acceptance tests hand to their workers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["drops_offsets", "shuffles", "slow"]

HELD_SECONDS = 20.0


def slow(frame: DataFrame) -> DataFrame:
    """Holds a batch for 20 s, in the executor, when it has records."""

    def hold(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            if batch.num_rows:
                threading.Event().wait(HELD_SECONDS)
            yield batch

    return frame.mapInArrow(hold, frame.schema)


def drops_offsets(frame: DataFrame) -> DataFrame:
    return frame.drop("offset")


def shuffles(frame: DataFrame) -> DataFrame:
    return frame.repartition(2)
