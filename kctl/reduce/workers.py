"""`onWorkers`: the report of each worker on itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kctl.reduce.base import Answer, BrokerSnapshot, per_sender
from kctl.rows.workers import WorkerRow, Workers


def reduce(answers: Sequence[Answer[WorkerRow]], _brokers: BrokerSnapshot) -> Workers:
    """Lists each worker's own row, with the age of its reply; named as its socket, whatever name it gives itself, and
    without a supervisor: that is for the master to add."""
    return Workers(
        tuple(
            replace(answer.result, name=answer.sender, age_seconds=answer.age_seconds, supervisor=None)
            for answer in per_sender(answers)
        )
    )
