"""`onPing`: the processes that answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kctl.reduce.base import Answer, BrokerSnapshot, per_sender
from kctl.rows.workers import PingRow

__all__ = ["Pings", "reduce"]


@dataclass(frozen=True, slots=True)
class Pings:
    rows: tuple[PingRow, ...] = ()
    """Sorted by name."""


def reduce(answers: Sequence[Answer[PingRow]], _brokers: BrokerSnapshot) -> Pings:
    return Pings(tuple(answer.result for answer in per_sender(answers)))
