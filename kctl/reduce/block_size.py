"""`onBlockSize`: what waits in the storages; one that several workers share is counted once."""

from __future__ import annotations

from collections.abc import Sequence

from kctl.reduce.base import Answer, ClusterFigures, youngest_rows
from kctl_agent.wire import JsonObject

__all__ = ["reduce"]

FIGURES = ("pending", "processing", "dead", "bytes", "limit")


def reduce(answers: Sequence[Answer], _cluster: ClusterFigures | None) -> JsonObject:
    """`{"pending", "processing", "dead", "bytes", "limit"}`: sums over the storages, null where one does not know.

    A worker that has not opened its storage yet answers without an identity and tells nothing.
    """
    storages = youngest_rows(
        (Answer(answer.sender, {"storages": [answer.result]}, answer.age_seconds) for answer in answers),
        "storages",
        lambda storage: storage.get("storage"),
    )
    known = [figures for identity, figures in storages.items() if identity is not None]
    return {name: _sum([figures.get(name) for figures in known]) for name in FIGURES}


def _sum(figures: list[int | None]) -> int | None:
    known = [figure for figure in figures if figure is not None]
    return sum(known) if known and len(known) == len(figures) else None
