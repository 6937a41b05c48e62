"""`onBlockSize`: what waits in the storages; one that several workers share is counted once."""

from __future__ import annotations

from collections.abc import Sequence

from kctl.reduce.base import Answer, ClusterFigures, youngest_rows
from kctl_agent.wire import JsonObject

__all__ = ["reduce"]

SUMS = ("pending", "delayed", "processing", "dead", "bytes", "limit", "limit_bytes", "dead_limit")


def reduce(answers: Sequence[Answer], _cluster: ClusterFigures | None) -> JsonObject:
    """Sums over the storages, null where one does not know; `free_bytes` of the one that has least; `full`, why a
    storage is full, or null.

    A worker that has not opened its storage yet answers without an identity and tells nothing.
    """
    storages = youngest_rows(
        (Answer(answer.sender, {"storages": [answer.result]}, answer.age_seconds) for answer in answers),
        "storages",
        lambda storage: storage.get("storage"),
    )
    known = [figures for identity, figures in storages.items() if identity is not None]
    free = [figures["free_bytes"] for figures in known if figures.get("free_bytes") is not None]
    full = sorted({str(figures["full"]) for figures in known if figures.get("full")})
    return {
        **{name: _sum([figures.get(name) for figures in known]) for name in SUMS},
        "free_bytes": min(free, default=None),
        "full": "; ".join(full) or None,
    }


def _sum(figures: list[int | None]) -> int | None:
    known = [figure for figure in figures if figure is not None]
    return sum(known) if known and len(known) == len(figures) else None
