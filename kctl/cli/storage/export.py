"""`kctl storage export`"""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Annotated

import typer

from kctl.cli.options import ConfigOption
from kctl.cli.output import as_json
from kctl.cli.storage.fleet_storage import load_fleet
from kctl.cli.storage.selection import (
    FromOption,
    OlderOption,
    PartitionOption,
    ToOption,
    TopicOption,
    selection_of,
)
from kctl.dead_letters.documents import dead_letter_document
from kctl.dead_letters.storage import opened_dead_letters
from kctl.errors import UsageError

__all__ = ["export"]


class ExportFormat(StrEnum):
    """How dead letters are exported."""

    JSONL = "jsonl"


def export(
    context: typer.Context,
    config: ConfigOption = None,
    dead: Annotated[bool, typer.Option("--dead", help="Dead letters.")] = False,
    topic: TopicOption = None,
    partition: PartitionOption = None,
    offset_from: FromOption = None,
    offset_to: ToOption = None,
    older_than: OlderOption = None,
    _output: Annotated[
        ExportFormat, typer.Option("--output", "-o", help="One JSON object per line.")
    ] = ExportFormat.JSONL,
) -> None:
    """Write dead letters to stdout as JSON lines.

    Bytes that are not UTF-8 stand under a name with `_base64`.
    """
    if not dead:
        raise UsageError("give what to export: --dead")
    with opened_dead_letters(load_fleet(context, config)) as storage:
        for dead_letter in storage.dead(selection_of(topic, partition, offset_from, offset_to, older_than)):
            sys.stdout.write(as_json(dead_letter_document(dead_letter), in_one_line=True) + "\n")
