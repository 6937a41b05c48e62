"""What a query does with its batches: the contract between the `pipeline`, which runs queries, and the kinds of
storages that a batch can be put into."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kctl_agent.process.bootstrap import BootstrapError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["BatchPut", "BatchRange", "PartitionPlan", "PutDone"]

FIXED = ("CANNOT_MODIFY_STATIC_CONFIG", "CANNOT_MODIFY_CONFIG")
"""Spark's error conditions for configuration that no session can have of its own."""


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """What the driver knows of one partition of a batch: it begins at `start`, and was planned on this version of the
    stored offset."""

    start: int
    version: int
    topic_id: str | None


@dataclass(frozen=True, slots=True)
class BatchRange:
    """What a batch reads of one partition: from its plan's start up to, not including, `end`."""

    plan: PartitionPlan
    end: int


@dataclass(frozen=True, slots=True)
class PutDone:
    """What a batch has stored: how many rows, and the timestamp of the last record of each partition, in Unix
    seconds, where it is known."""

    rows: int
    last_timestamps: Mapping[tuple[str, int], float]


class BatchPut(ABC):
    """The driver's side of a storage, with the user's transform. `token` is what a batch's own errors are known by
    (`batch_failure`)."""

    def __init__(self, transform: Callable[[DataFrame], DataFrame], name: str) -> None:
        """`name` is that of the transform in the configuration, empty where there is none."""
        self._transform = transform
        self.name = name

    def transformed(self, frame: DataFrame) -> DataFrame:
        """What the user's transform makes of records. Raises BootstrapError where it sets configuration that is the
        same for all sessions of a driver, and whatever it raises itself."""
        from pyspark.errors import PySparkException

        try:
            return self._transform(frame)
        except PySparkException as error:
            if error.getCondition() not in FIXED:
                raise
            key = (error.getMessageParameters() or {}).get("key", "this configuration").strip('"')
            raise BootstrapError(
                f"the transform {self.name} cannot set {key}: Spark fixes it when the driver starts; set it in "
                "[spark.conf], for all workers"
            ) from None

    @abstractmethod
    def check(self, source: DataFrame) -> None:
        """Check the transform on records of Kafka as a query reads them. Raises BootstrapError; StorageError: it may
        work later."""

    @abstractmethod
    def stream(self, source: DataFrame) -> DataFrame:
        """What the streaming query is made of."""

    @abstractmethod
    def put(self, frame: DataFrame, ranges: Mapping[tuple[str, int], BatchRange], token: str) -> PutDone:
        """Store a batch of `stream` and move the stored offsets to the ends of its ranges. On Spark's callback thread.

        Raises what Spark raises, and StorageError.
        """
