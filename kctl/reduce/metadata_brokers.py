"""`onMetadataBrokers`: the brokers that any worker knows of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kctl.reduce.base import Answer, BrokerSnapshot, newest_rows
from kctl.rows.cluster import BrokerRow

__all__ = ["BrokerRows", "reduce"]


@dataclass(frozen=True, slots=True)
class BrokerRows:
    rows: tuple[BrokerRow, ...] = ()
    """Sorted by node id."""


def reduce(answers: Sequence[Answer[tuple[BrokerRow, ...]]], _brokers: BrokerSnapshot) -> BrokerRows:
    """A union by node id; the newest answer wins."""
    brokers = newest_rows(answers, lambda row: row.node_id)
    return BrokerRows(tuple(brokers[node_id] for node_id in sorted(brokers)))
