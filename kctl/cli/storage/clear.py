"""`kctl storage clear`"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kctl.audit import fleet_log, operation
from kctl.cli.confirm import confirm
from kctl.cli.options import ConfigOption, YesOption
from kctl.cli.output import echo
from kctl.cli.storage.fleet_storage import load_fleet
from kctl.cli.storage.selection import choosing, params_of
from kctl.dead_letters.storage import opened
from kctl.errors import UsageError
from kctl_agent.rpc.messages import number_of
from kctl_agent.storage.selection import Selection

if TYPE_CHECKING:
    from kctl.config import Config

__all__ = ["clear"]


@choosing
def clear(
    selection: Selection,
    config: ConfigOption = None,
    yes: YesOption = False,
) -> None:
    """Remove what waits or is delayed, never what is leased, for good. Asks first, and shows how much it is.

    It is not read from Kafka again: the stored offsets stay where they are. Dead letters: `kctl storage dead delete`.
    """
    echo(_cleared(load_fleet(config), selection, yes=yes))


def _cleared(fleet: Config, selection: Selection, *, yes: bool) -> str:
    if fleet.storage.kind.is_table:
        raise UsageError('storage.mode is "lake": rows go into a table, and nothing waits in a storage')
    with opened(fleet) as storage:
        if not yes:
            chosen = selection.of_blocks()
            partitions = [p for p in storage.stats().partitions if chosen.takes_partition(p.topic, p.partition)]
            count = sum(p.pending + p.delayed for p in partitions)
            if count == 0:
                return "no messages wait"
            confirm(f"Remove {number_of(count, 'message')} (waiting) of {storage.identity} for good?")
        with operation(fleet_log(fleet), "storage clear", params_of(selection, "pending")) as running:
            running.text = f"{number_of(storage.clear(selection), 'message')} removed"
    return running.text
