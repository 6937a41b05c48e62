"""`kctl operations` and `kctl operation`"""

from __future__ import annotations

from typing import Annotated, Any

from kctl.cli.command import argument, option
from kctl.cli.fleet.ask import incomplete
from kctl.cli.fleet.submit import all_operations, asked, cancel_operation, follow, show
from kctl.cli.options import ConfigOption, OutputOption, fleet_of
from kctl.cli.output import as_text, echo
from kctl.cli.signature import command
from kctl.cli.table import Column, clean, columns, duration, render
from kctl.fields import moment

_COLUMNS = columns(">id operation by via at >took state what-happened")
_POSITIONAL = ("name", "level")


def _operations(
    config: ConfigOption = None,
    local: Annotated[bool, option("--local", help="Do not ask other hosts of the fleet.")] = False,
    output: OutputOption = "table",
) -> None:
    """List the last 500 operations, newest first.

    Shows what was requested, by which user (`by`), over the socket or HTTP (`via`), when, and how it ended.
    """
    reply = all_operations(fleet_of(config), is_local=local)
    rows = reply.result["rows"]
    if output != "table":
        echo(as_text(reply.result, output))
    elif any("host" in row for row in rows):
        echo("\n".join(render([Column("host"), *_COLUMNS], [(row["host"], *_cells(row)) for row in rows])))
    else:
        echo("\n".join(render(_COLUMNS, [_cells(operation) for operation in rows])))
    if (problem := incomplete(reply)) is not None:
        raise problem


def _cells(operation: dict[str, Any]) -> tuple[object, ...]:
    ended = operation["ended_at"]
    took = None if ended is None else duration(ended - operation["started_at"])
    at, typed = moment(operation["started_at"]), _typed(operation)
    return operation["id"], typed, operation["by"], operation["via"], at, took, operation["state"], operation["text"]


def _typed(operation: dict[str, Any]) -> str:
    """Formats an operation as typed: `seek --topic orders --to latest --dry-run`, `scale workers=3`."""
    name, params = operation["operation"].replace("_", "-"), operation["params"]
    if name == "scale":
        return " ".join([name, *(f"{kind}={count}" for kind, count in params.items())])
    words = [str(params[key]).replace(",", " ") for key in _POSITIONAL if key in params]
    for key, value in params.items():
        if key not in _POSITIONAL and value is not False:
            words.append(f"--{key.replace('_', '-')}" + ("" if value is True else f" {value}"))
    return " ".join([name, *words])


def _operation(
    id_: Annotated[str, argument("ID", help="The id that was printed when the operation was submitted.")],
    config: ConfigOption = None,
    cancel: Annotated[bool, option("--cancel", help="End it, and show the outcome.")] = False,
    wait: Annotated[bool, option("--wait", help="Wait until it ends, and show its progress.")] = False,
    output: OutputOption = "table",
) -> None:
    """Show the progress of an operation.

    Exit code 1 if it has failed, 3 if it may still happen. If the outcome of `--cancel` is `failed`, the operation has
    no later effect.
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


COMMAND = command("operations", _operations)
OPERATION = command("operation", _operation)
