"""`kctl storage clear`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kctl.audit import fleet_log, operation
from kctl.cli.confirm import confirm
from kctl.cli.options import ConfigOption, YesOption
from kctl.cli.storage.fleet_storage import load_fleet
from kctl.cli.storage.selection import PartitionOption, TopicOption, params_of, selection_of
from kctl.dead_letters.storage import opened_dead_letters
from kctl.errors import UsageError
from kctl_agent.rpc.messages import number_of

if TYPE_CHECKING:
    from kctl_agent.storage.base import DeadLetterStore, Selection

__all__ = ["clear"]


def clear(
    context: typer.Context,
    config: ConfigOption = None,
    pending: Annotated[bool, typer.Option("--pending", help="What waits or is delayed; never what is leased.")] = False,
    dead: Annotated[bool, typer.Option("--dead", help="Dead letters.")] = False,
    topic: TopicOption = None,
    partition: PartitionOption = None,
    yes: YesOption = False,
) -> None:
    """Remove messages for good. Asks first, and shows what it would remove.

    They are not read from Kafka again: the stored offsets stay where they are.
    """
    if dead == pending:
        raise UsageError("give what to remove: --pending or --dead")
    selection = selection_of(topic, partition)
    fleet = load_fleet(context, config)
    params = params_of(selection, "dead" if dead else "pending")
    with opened_dead_letters(fleet) as storage:
        if not yes:
            count = _count(storage, selection, is_dead=dead)
            if count == 0:
                typer.echo("no dead letters" if dead else "no messages wait")
                return
            what = f"{number_of(count, 'message')} ({'dead' if dead else 'waiting'})"
            confirm(f"Remove {what} of {storage.identity} for good?")
        with operation(fleet_log(fleet), "storage clear", params) as running:
            removed = storage.remove_dead(selection) if dead else _clear_pending(storage, selection)
            running.text = f"{number_of(removed, 'message')} removed"
    typer.echo(running.text)


def _clear_pending(storage: DeadLetterStore, selection: Selection) -> int:
    from kctl_agent.storage.base import Storage

    if not isinstance(storage, Storage):
        raise UsageError('storage.mode is "lake": rows go into a table, and nothing waits in a storage; give --dead')
    return storage.clear(selection)


def _count(storage: DeadLetterStore, selection: Selection, *, is_dead: bool) -> int:
    from kctl_agent.storage.base import Storage

    if not isinstance(storage, Storage):  # a table, in which nothing waits
        return storage.count_dead(selection) if is_dead else 0
    chosen = [p for p in storage.stats().partitions if selection.takes_partition(p.topic, p.partition)]
    return sum(p.dead if is_dead else p.pending + p.delayed for p in chosen)
