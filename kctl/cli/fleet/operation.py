"""`kctl operation`"""

from __future__ import annotations

from typing import Annotated

from kctl.cli.command import argument, option
from kctl.cli.fleet.submit import asked, cancel_operation, follow, show
from kctl.cli.options import ConfigOption, OutputOption, fleet_of
from kctl.cli.output import echo
from kctl.cli.signature import command
from kctl.cli.table import clean


def _operation(
    id_: Annotated[str, argument("ID", help="The id that was printed when the operation was submitted.")],
    config: ConfigOption = None,
    cancel: Annotated[bool, option("--cancel", help="End it, and show the outcome.")] = False,
    wait: Annotated[bool, option("--wait", help="Wait until it ends, and show its progress.")] = False,
    output: OutputOption = "table",
) -> None:
    """Show the progress of an operation.

    Exit code 1 if it has failed, 3 if it may still happen. `--cancel` undoes what can be undone: after `failed` nothing
    changes any more.
    """
    fleet = fleet_of(config)
    if cancel:
        cancel_operation(fleet, id_)
    operation = asked(fleet, id_)
    operation = follow(fleet, operation) if wait or cancel else operation
    if cancel and output == "table" and operation["state"] == "failed":
        echo(f"operation {id_} has ended: {clean(operation['text'])}")
    else:
        show(operation, output)


COMMAND = command("operation", _operation)
