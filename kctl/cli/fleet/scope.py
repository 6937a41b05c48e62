"""Which part of a fleet is meant: a worker, a topic, a partition or everything."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from kctl.errors import UsageError

__all__ = ["AllOption", "PartitionOption", "TopicOption", "WorkerOption", "scope"]

WorkerOption = Annotated[
    str | None, typer.Option("--worker", metavar="NAME", show_default=False, help="This worker or sinker.")
]
TopicOption = Annotated[str | None, typer.Option("--topic", metavar="NAME", show_default=False, help="This topic.")]
PartitionOption = Annotated[
    int | None, typer.Option("--partition", min=0, metavar="N", show_default=False, help="This partition of the topic.")
]
AllOption = Annotated[bool, typer.Option("--all", help="Everything, sinkers too.")]


def scope(worker: str | None, topic: str | None, partition: int | None, everything: bool) -> dict[str, Any]:
    if everything and (worker is not None or topic is not None):
        raise UsageError(f"only one of --all and {'--topic' if worker is None else '--worker'}")
    if worker is not None and topic is not None:
        raise UsageError("only one of --worker and --topic")
    if worker is None and topic is None and not everything:
        raise UsageError("say which: --worker NAME, --topic NAME (with --partition N), or --all")
    return {"worker": worker, "topic": topic, "partition": partition, "all": everything or None}
