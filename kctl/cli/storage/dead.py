"""`kctl storage dead list` and `kctl storage dead show`"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from kctl.cli.options import ConfigOption, Output, OutputOption, WideOutput
from kctl.cli.output import as_text
from kctl.cli.storage.opened import load_fleet, opened
from kctl.cli.storage.selection import (
    FromOption,
    OlderOption,
    PartitionOption,
    ToOption,
    TopicOption,
    selection_of,
)
from kctl.cli.storage.tables import (
    dead_letter_document,
    dead_letter_lines,
    dead_letter_table,
    error_groups,
    group_document,
    group_table,
)
from kctl.errors import UsageError

__all__ = ["list_dead", "show_dead"]


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
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="The most rows that are listed.")] = 50,
) -> None:
    """List dead letters, the oldest first, or count them by error.

    \b
    kctl storage dead list --topic orders -o wide
    kctl storage dead list --by-error
    """
    selection = selection_of(topic, partition, offset_from, offset_to, older_than)
    is_wide = output is WideOutput.WIDE
    with opened(load_fleet(context, config)) as storage:
        if by_error:
            groups = error_groups(storage.dead(selection))
            table, rows = group_table(groups[:limit], is_wide=is_wide), [group_document(x) for x in groups[:limit]]
            more = len(groups) > limit
        else:
            dead_letters = list(storage.dead(selection, limit + 1))
            table, rows = (
                dead_letter_table(dead_letters[:limit], is_wide=is_wide),
                [dead_letter_document(x) for x in dead_letters[:limit]],
            )
            more = len(dead_letters) > limit
    if output in (WideOutput.TABLE, WideOutput.WIDE):
        typer.echo("\n".join(table))
        if more:
            sys.stderr.write(f"there are more than {limit}: --limit\n")
        return
    document = {"rows": rows, "more": more}
    typer.echo(as_text(document, output))


def show_dead(
    context: typer.Context,
    id_: Annotated[str, typer.Argument(metavar="ID", help="As `kctl storage dead list` prints it.")],
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show one dead letter: its message, error and traceback."""
    with opened(load_fleet(context, config)) as storage:
        dead_letter = storage.find_dead(id_)
    if dead_letter is None:
        raise UsageError(f"there is no dead letter {id_}; `kctl storage dead list` prints those there are")
    if output is Output.TABLE:
        typer.echo("\n".join(dead_letter_lines(dead_letter)))
    else:
        typer.echo(as_text(dead_letter_document(dead_letter), output))
