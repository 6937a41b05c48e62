"""`kctl storage vacuum`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from kctl.audit import fleet_log, operation
from kctl.cli.command import option
from kctl.cli.confirm import confirm
from kctl.cli.options import ConfigOption, YesOption
from kctl.cli.output import echo
from kctl.cli.storage.fleet_storage import load_fleet, opened_table
from kctl_agent.rpc.messages import number_of

if TYPE_CHECKING:
    from kctl.config import Config
    from kctl_agent.storage.lake.table_storage import TableStorage

__all__ = ["vacuum"]


def vacuum(
    config: ConfigOption = None,
    retention_hours: Annotated[
        int | None,
        option(
            "--retention-hours",
            least=0,
            metavar="N",
            help="Keep what was replaced or written since; without it as the table is configured, by default 168.",
        ),
    ] = None,
    dry_run: Annotated[bool, option("--dry-run", help="Print the files, and remove none.")] = False,
    yes: YesOption = False,
) -> None:
    """Remove files that a table (mode `lake`) no longer needs.

    Also of the table of its dead letters: those that no version of the last seven days has. Asks first, and shows what
    it would remove; older versions cannot be read any more then. What a batch is writing stays, however old.
    """
    fleet = load_fleet(config)
    with opened_table(fleet) as lake:
        for number, table in enumerate(lake.tables()):
            of = "dead letters: " if number else ""
            echo(f"{of}{_vacuumed(fleet, table, retention_hours, dry_run=dry_run, yes=yes)}")


def _vacuumed(fleet: Config, lake: TableStorage, retention_hours: int | None, *, dry_run: bool, yes: bool) -> str:
    """What was done, or would be."""
    from kctl_agent.storage.lake.maintenance.vacuum import remove, unused
    from kctl_agent.storage.limits import readable

    found = unused(lake.table, retention_hours)
    if not found:
        return "no files to remove"
    what = f"{number_of(len(found), 'file')} ({readable(sum(file.size for file in found))})"
    if dry_run:
        echo("\n".join(file.name for file in found))
        return f"would remove {what}"
    if not yes:
        confirm(f"Remove {what} of {lake.identity} for good?")
        # The answer may have taken a day: somebody may have restored a version that has them.
        still = {file.name for file in unused(lake.table, retention_hours)}
        found = [file for file in found if file.name in still]
    params = {"table": str(lake.folder), "retention_hours": retention_hours}
    with operation(fleet_log(fleet), "storage vacuum", params) as running:
        running.text = f"{number_of(remove(lake.table, found), 'file')} removed"
    return running.text
