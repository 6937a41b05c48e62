"""`kctl storage requeue`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kctl.audit import fleet_log, operation
from kctl.cli.options import ConfigOption
from kctl.cli.storage.fleet_storage import load_fleet
from kctl.cli.storage.selection import (
    FromOption,
    OlderOption,
    PartitionOption,
    ToOption,
    TopicOption,
    params_of,
    selection_of,
)
from kctl.dead_letters.storage import opened_dead_letters, opened_lake
from kctl.errors import UsageError
from kctl_agent.rpc.messages import number_of

if TYPE_CHECKING:
    from kctl.config import Config
    from kctl_agent.storage.base import DeadLetterStore, Selection

__all__ = ["requeue"]


def requeue(
    context: typer.Context,
    config: ConfigOption = None,
    dead: Annotated[bool, typer.Option("--dead", help="Dead letters, which then begin anew.")] = False,
    stuck: Annotated[
        bool,
        typer.Option("--stuck", help="What waits for its next try, and leases that ran out; with --older-than any."),
    ] = False,
    cancel: Annotated[
        bool,
        typer.Option("--cancel", help="Of a table: what was put back and no worker has taken yet is dead again."),
    ] = False,
    topic: TopicOption = None,
    partition: PartitionOption = None,
    offset_from: FromOption = None,
    offset_to: ToOption = None,
    older_than: OlderOption = None,
) -> None:
    """Put messages back, to be handed out at once. Of a table a worker gives them to the transform once more.

    \b
    kctl storage requeue --dead --topic orders --partition 3
    kctl storage requeue --stuck --older-than 600
    kctl storage requeue --cancel
    """
    if (dead, stuck, cancel).count(True) != 1:
        raise UsageError("give what to put back: --dead or --stuck, or --cancel")
    selection = selection_of(topic, partition, offset_from, offset_to, older_than)
    fleet = load_fleet(context, config)
    if cancel:
        if selection != selection_of(None, None):
            raise UsageError("--cancel is about everything that was put back: leave the other options out")
        typer.echo(_cancelled(fleet))
        return
    params = params_of(selection, "dead" if dead else "stuck")
    with opened_dead_letters(fleet) as storage, operation(fleet_log(fleet), "storage requeue", params) as running:
        count = storage.requeue_dead(selection) if dead else _requeue_stuck(storage, selection)
        running.text = f"{number_of(count, 'message')} put back"
    typer.echo(running.text)


def _cancelled(fleet: Config) -> str:
    from kctl_agent.storage.lake.dead_letters.table import DeadLetterTable

    if not fleet.storage.kind.is_table:
        raise UsageError(
            f'storage.mode is "{fleet.storage.mode}": only a table (mode `lake`) has dead letters that were put back '
            "and that no worker has taken yet"
        )
    with (
        opened_lake(fleet) as lake,
        operation(fleet_log(fleet), "storage requeue", {"what": "cancel"}) as running,
    ):
        count = DeadLetterTable(lake, fleet.kafka.group).cancel_requeued()
        were = "was put back is a dead letter" if count == 1 else "were put back are dead letters"
        running.text = f"{number_of(count, 'message')} that {were} again"
    return running.text


def _requeue_stuck(storage: DeadLetterStore, selection: Selection) -> int:
    from kctl_agent.storage.base import Storage

    if not isinstance(storage, Storage):
        raise UsageError('storage.mode is "lake": rows go into a table, and nothing waits in a storage; give --dead')
    return storage.requeue_stuck(selection)
