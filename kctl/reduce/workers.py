"""`onWorkers`: what each worker reports of itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kctl.reduce.base import Answer, BrokerSnapshot, per_sender
from kctl.rows.workers import WorkerRow

__all__ = ["Workers", "reduce"]


@dataclass(frozen=True, slots=True)
class Workers:
    rows: tuple[WorkerRow, ...] = ()
    """Sorted by name."""


def reduce(answers: Sequence[Answer[WorkerRow]], _brokers: BrokerSnapshot) -> Workers:
    """Each worker's own row, with the age of its reply."""
    return Workers(tuple(replace(answer.result, age_seconds=answer.age_seconds) for answer in per_sender(answers)))
