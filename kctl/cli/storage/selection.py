"""Which messages are meant."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from kctl_agent.storage.base import Selection

__all__ = [
    "FromOption",
    "OlderOption",
    "PartitionOption",
    "ToOption",
    "TopicOption",
    "params_of",
    "selection_of",
]

TopicOption = Annotated[str | None, typer.Option("--topic", metavar="NAME", help="Only of this topic.")]
PartitionOption = Annotated[int | None, typer.Option("--partition", min=0, metavar="N", help="Only of this partition.")]
FromOption = Annotated[int | None, typer.Option("--offset-from", min=0, metavar="N", help="Only from this offset on.")]
ToOption = Annotated[
    int | None, typer.Option("--offset-to", min=0, metavar="N", help="Only up to this offset, inclusive.")
]
OlderOption = Annotated[
    float | None, typer.Option("--older-than", min=0, metavar="SECONDS", help="Only what is so old at least.")
]


def selection_of(
    topic: str | None,
    partition: int | None,
    offset_from: int | None = None,
    offset_to: int | None = None,
    older_than: float | None = None,
) -> Selection:
    from kctl_agent.storage.base import Selection

    return Selection(topic, partition, offset_from, offset_to, older_than)


def params_of(selection: Selection, what: str) -> dict[str, Any]:
    """What was chosen, for the audit log."""
    return {"what": what} | {name: value for name, value in asdict(selection).items() if value is not None}
