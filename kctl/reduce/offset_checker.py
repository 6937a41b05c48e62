"""`onOffsetChecker`: one row per partition, also for those that no worker answers for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kctl.reduce.base import Answer, BrokerSnapshot
from kctl.reduce.partition_rows import partition_rows
from kctl.rows.partitions import PartitionRow
from kctl_agent.rpc.wire import JsonObject


@dataclass(frozen=True, slots=True)
class Partitions:
    rows: tuple[PartitionRow, ...] = ()
    """The group's partitions, sorted by topic and number."""
    attached: tuple[PartitionRow, ...] = ()
    """Partitions of attached applications, beside those of the group, sorted by application."""

    @property
    def every(self) -> tuple[PartitionRow, ...]:
        return (*self.rows, *self.attached) if self.attached else self.rows

    def to_json(self) -> JsonObject:
        return {"rows": self.every}


def reduce(answers: Sequence[Answer[tuple[PartitionRow, ...]]], brokers: BrokerSnapshot) -> Partitions:
    return Partitions(*partition_rows(answers, brokers))
