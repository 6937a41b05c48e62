"""Rows of workers that join a worker's own report with its supervisor's view: for RPC, HTTP and the command line."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from operator import attrgetter

from kctl.master.snapshot import Reduced, WorkerStatus
from kctl.rows.workers import Workers, with_statuses

__all__ = ["with_supervisor"]


def with_supervisor(reduced: Reduced[Workers], statuses: Iterable[WorkerStatus]) -> Reduced[Workers]:
    """Returns the result of `workers` with the supervisor's view; None where an agent is only attached.

    A supervised worker whose agent is silent has a row too: its name, kind and pid, and None for what only it could
    report. Pure.
    """
    rows = sorted(with_statuses(reduced.result.rows, statuses), key=attrgetter("name"))
    return replace(reduced, result=Workers(tuple(rows)))
