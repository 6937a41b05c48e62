"""`onDescribe`: every method that some agent serves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kctl.reduce.base import Answer, BrokerSnapshot, newest_rows
from kctl.rows.methods import MethodRow

__all__ = ["Methods", "reduce"]


@dataclass(frozen=True, slots=True)
class Methods:
    methods: tuple[MethodRow, ...] = ()
    """Sorted by method."""


def reduce(answers: Sequence[Answer[tuple[MethodRow, ...]]], _brokers: BrokerSnapshot) -> Methods:
    """A union by method; the newest answer wins."""
    methods = newest_rows(answers, lambda row: row.method)
    return Methods(tuple(methods[name] for name in sorted(methods)))
