"""`kctl storage dead list` and `kctl storage dead show`"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, TypeVar

import typer

from kctl.cli.options import ConfigOption, Output, OutputOption, WideOutput
from kctl.cli.output import as_text
from kctl.cli.storage.fleet_storage import load_fleet
from kctl.cli.storage.selection import (
    FromOption,
    OlderOption,
    PartitionOption,
    ToOption,
    TopicOption,
    selection_of,
)
from kctl.cli.storage.tables import (
    dead_letter_lines,
    dead_letter_table,
    error_groups,
    group_document,
    group_table,
)
from kctl.dead_letters.documents import dead_letter_document
from kctl.dead_letters.storage import opened_dead_letters
from kctl.errors import UsageError

__all__ = ["list_dead", "show_dead"]

R = TypeVar("R")


def list_dead(
    context: typer.Context,
    config: ConfigOption = None,
    output: Annotated[
        WideOutput, typer.Option("--output", "-o", help="How they are printed; `wide` is a table that cuts no error.")
    ] = WideOutput.TABLE,
    by_error: Annotated[
        bool, typer.Option("--by-error", help="One row for each error, the most frequent first.")
    ] = False,
    topic: TopicOption = None,
    partition: PartitionOption = None,
    offset_from: FromOption = None,
    offset_to: ToOption = None,
    older_than: OlderOption = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, metavar="N", help="The most rows that are listed.")
    ] = 50,
) -> None:
    """List dead letters, the oldest first, or count them by error.

    \b
    kctl storage dead list --topic orders -o wide
    kctl storage dead list --by-error
    """
    selection = selection_of(topic, partition, offset_from, offset_to, older_than)
    with opened_dead_letters(load_fleet(context, config)) as storage:
        if by_error:
            show = partial(_print, error_groups(storage.dead(selection)), group_table, group_document)
        else:
            show = partial(_print, list(storage.dead(selection, limit + 1)), dead_letter_table, dead_letter_document)
    show(limit, output)


def _print(
    found: list[R],
    table: Callable[..., list[str]],
    document: Callable[[R], dict[str, Any]],
    limit: int,
    output: WideOutput,
) -> None:
    """The first `limit` of what was found, and whether there is more."""
    listed, has_more = found[:limit], len(found) > limit
    if output not in (WideOutput.TABLE, WideOutput.WIDE):
        typer.echo(as_text({"rows": [document(each) for each in listed], "more": has_more}, output))
        return
    typer.echo("\n".join(table(listed, is_wide=output is WideOutput.WIDE)))
    if has_more:
        sys.stderr.write(f"there are more than {limit}: --limit\n")


def show_dead(
    context: typer.Context,
    id_: Annotated[str, typer.Argument(metavar="ID", help="As `kctl storage dead list` prints it.")],
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show one dead letter: its message, error and traceback."""
    with opened_dead_letters(load_fleet(context, config)) as storage:
        dead_letter = storage.find_dead(id_)
    if dead_letter is None:
        raise UsageError(f"there is no dead letter {id_}; `kctl storage dead list` prints those there are")
    if output is Output.TABLE:
        typer.echo("\n".join(dead_letter_lines(dead_letter)))
    else:
        typer.echo(as_text(dead_letter_document(dead_letter), output))
