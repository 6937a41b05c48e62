"""`kctl storage`: look into a fleet's storage, put back, remove and export, whether the fleet runs or not."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kctl.audit import fleet_log, operation
from kctl.cli.confirm import confirmed
from kctl.cli.options import ConfigOption, Output, OutputOption, config_option
from kctl.cli.output import as_json, as_yaml
from kctl.cli.storage_tables import (
    error_groups,
    group_document,
    group_table,
    letter_document,
    letter_lines,
    letter_table,
    status_document,
    status_lines,
)
from kctl.errors import UsageError
from kctl.fleets import find
from kctl.privileges import as_owner

if TYPE_CHECKING:
    from kctl.config import Config
    from kctl_agent.storage.base import Selection, Storage

__all__ = ["register"]


class Format(StrEnum):
    """How dead letters are exported."""

    JSONL = "jsonl"


class ListOutput(StrEnum):
    """How dead letters are listed."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"


TopicOption = Annotated[str | None, typer.Option("--topic", metavar="NAME", help="Only of this topic.")]
PartitionOption = Annotated[int | None, typer.Option("--partition", min=0, metavar="N", help="Only of this partition.")]
FromOption = Annotated[int | None, typer.Option("--offset-from", min=0, metavar="N", help="Only from this offset on.")]
ToOption = Annotated[
    int | None, typer.Option("--offset-to", min=0, metavar="N", help="Only up to this offset, inclusive.")
]
OlderOption = Annotated[
    float | None, typer.Option("--older-than", min=0, metavar="SECONDS", help="Only what is so old at least.")
]


def register(app: typer.Typer) -> None:
    storage = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Messages that wait, failed or died.")
    storage.command("status")(_status)
    storage.command("requeue")(_requeue)
    storage.command("clear")(_clear)
    storage.command("export")(_export)
    dead = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Messages that were tried too often.")
    dead.command("list")(_list)
    dead.command("show")(_show)
    storage.add_typer(dead, name="dead")
    app.add_typer(storage, name="storage")


def _status(context: typer.Context, config: ConfigOption = None, output: OutputOption = Output.TABLE) -> None:
    """Count waiting, leased, delayed and dead messages."""
    with _opened(_loaded(context, config)) as storage:
        stats = storage.stats()
        identity = storage.identity
    if output is Output.TABLE:
        typer.echo("\n".join(status_lines(identity, stats)))
    else:
        document = status_document(identity, stats)
        typer.echo(as_json(document) if output is Output.JSON else as_yaml(document))


def _requeue(
    context: typer.Context,
    config: ConfigOption = None,
    dead: Annotated[bool, typer.Option("--dead", help="Dead letters, which then begin anew.")] = False,
    stuck: Annotated[
        bool,
        typer.Option("--stuck", help="What waits for its next try, and leases that ran out; with --older-than any."),
    ] = False,
    topic: TopicOption = None,
    partition: PartitionOption = None,
    offset_from: FromOption = None,
    offset_to: ToOption = None,
    older_than: OlderOption = None,
) -> None:
    """Put messages back, to be handed out at once.

    \b
    kctl storage requeue --dead --topic orders --partition 3
    kctl storage requeue --stuck --older-than 600
    """
    if dead == stuck:
        raise UsageError("say what to put back: --dead or --stuck")
    selection = _selection(topic, partition, offset_from, offset_to, older_than)
    loaded = _loaded(context, config)
    params = _params(selection, "dead" if dead else "stuck")
    with _opened(loaded) as storage, operation(fleet_log(loaded), "storage requeue", params) as running:
        count = storage.requeue_dead(selection) if dead else storage.requeue_stuck(selection)
        running.text = f"{_messages(count)} put back"
    typer.echo(running.text)


def _clear(
    context: typer.Context,
    config: ConfigOption = None,
    pending: Annotated[bool, typer.Option("--pending", help="What waits or is delayed; never what is leased.")] = False,
    dead: Annotated[bool, typer.Option("--dead", help="Dead letters.")] = False,
    topic: TopicOption = None,
    partition: PartitionOption = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Remove messages for good. Asks first, and says what it would remove.

    They are not read from Kafka again: the marks stay where they are.
    """
    if dead == pending:
        raise UsageError("say what to remove: --pending or --dead")
    selection = _selection(topic, partition)
    loaded = _loaded(context, config)
    params = _params(selection, "dead" if dead else "pending")
    with _opened(loaded) as storage:
        if not yes:
            chosen = [p for p in storage.stats().partitions if selection.takes_partition(p.topic, p.partition)]
            count = sum(p.dead if dead else p.pending + p.delayed for p in chosen)
            if count == 0:
                typer.echo("no dead letters" if dead else "no messages wait")
                return
            _ask(f"Remove {_messages(count)} ({'dead' if dead else 'waiting'}) of {storage.identity} for good?")
        with operation(fleet_log(loaded), "storage clear", params) as running:
            removed = storage.clear("dead" if dead else "pending", selection)
            running.text = f"{_messages(removed)} removed"
    typer.echo(running.text)


def _export(
    context: typer.Context,
    config: ConfigOption = None,
    dead: Annotated[bool, typer.Option("--dead", help="Dead letters.")] = False,
    topic: TopicOption = None,
    partition: PartitionOption = None,
    offset_from: FromOption = None,
    offset_to: ToOption = None,
    older_than: OlderOption = None,
    _output: Annotated[Format, typer.Option("--output", "-o", help="One JSON object per line.")] = Format.JSONL,
) -> None:
    """Write dead letters to stdout as JSON lines.

    Bytes that are not UTF-8 stand under a name with `_base64`.
    """
    if not dead:
        raise UsageError("say what to export: --dead")
    with _opened(_loaded(context, config)) as storage:
        for letter in storage.dead(_selection(topic, partition, offset_from, offset_to, older_than)):
            sys.stdout.write(as_json(letter_document(letter), in_one_line=True) + "\n")


def _list(
    context: typer.Context,
    config: ConfigOption = None,
    output: Annotated[
        ListOutput, typer.Option("--output", "-o", help="How they are printed; `wide` is a table that cuts no error.")
    ] = ListOutput.TABLE,
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
    selection = _selection(topic, partition, offset_from, offset_to, older_than)
    is_wide = output is ListOutput.WIDE
    with _opened(_loaded(context, config)) as storage:
        if by_error:
            groups = error_groups(storage.dead(selection))
            table, rows = group_table(groups[:limit], is_wide=is_wide), [group_document(x) for x in groups[:limit]]
            more = len(groups) > limit
        else:
            letters = list(storage.dead(selection, limit + 1))
            table, rows = letter_table(letters[:limit], is_wide=is_wide), [letter_document(x) for x in letters[:limit]]
            more = len(letters) > limit
    if output in (ListOutput.TABLE, ListOutput.WIDE):
        typer.echo("\n".join(table))
        if more:
            sys.stderr.write(f"there are more than {limit}: --limit\n")
        return
    document = {"rows": rows, "more": more}
    typer.echo(as_json(document) if output is ListOutput.JSON else as_yaml(document))


def _show(
    context: typer.Context,
    id_: Annotated[str, typer.Argument(metavar="ID", help="As `kctl storage dead list` prints it.")],
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show one dead letter: its message, error and traceback."""
    with _opened(_loaded(context, config)) as storage:
        letter = storage.find_dead(id_)
    if letter is None:
        raise UsageError(f"there is no dead letter {id_}; `kctl storage dead list` prints those there are")
    if output is Output.TABLE:
        typer.echo("\n".join(letter_lines(letter)))
    else:
        document = letter_document(letter)
        typer.echo(as_json(document) if output is Output.JSON else as_yaml(document))


def _loaded(context: typer.Context, config: ConfigOption) -> Config:
    """The configuration of the fleet that is meant."""
    from kctl.config import load

    return load(find(config_option(context, config), os.environ).config, os.environ)


@contextmanager
def _opened(config: Config) -> Iterator[Storage]:
    """The storage of a fleet, used as the fleet's own user where we are root. A file that does not exist is not made by
    looking at it.

    Raises:
        StorageUnusable: it cannot be opened; nothing was put yet.
        UsageError: we are root, and whose fleet it is cannot be told.
    """
    from kctl.config.storage import storage_settings
    from kctl_agent.storage import open_storage  # numpy and pyarrow: 200 ms
    from kctl_agent.storage.base import StorageUnusable

    if config.storage.mode == "redis":
        with _prepared(open_storage(storage_settings(config))) as storage:
            yield storage
        return
    with as_owner(config.storage.path, config.path):
        if not config.storage.path.exists():
            raise StorageUnusable(f"{config.storage.path} does not exist: no worker has put anything yet")
        with _prepared(open_storage(storage_settings(config))) as storage:
            yield storage


@contextmanager
def _prepared(storage: Storage) -> Iterator[Storage]:
    try:
        storage.prepare()
        yield storage
    finally:
        storage.close()


def _selection(
    topic: str | None,
    partition: int | None,
    offset_from: int | None = None,
    offset_to: int | None = None,
    older_than: float | None = None,
) -> Selection:
    from kctl_agent.storage.base import Selection

    return Selection(topic, partition, offset_from, offset_to, older_than)


def _params(selection: Selection, what: str) -> dict[str, Any]:
    """What was chosen, for the audit log."""
    return {"what": what} | {name: value for name, value in asdict(selection).items() if value is not None}


def _ask(question: str) -> None:
    if not sys.stdin.isatty():
        raise UsageError(f"{question} stdin is not a terminal, so it cannot be confirmed: use --yes")
    if not confirmed(question):
        raise typer.Exit(1)


def _messages(count: int) -> str:
    return f"{count} message{'' if count == 1 else 's'}"
