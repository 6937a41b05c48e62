"""Submits, follows and shows operations, for `kctl operations`, `kctl operation` and other commands."""

import argparse
import sys
from collections.abc import Mapping
from threading import Event
from typing import Any

from kctl.cli.command import CONFIG, OUTPUT, Command, Option
from kctl.cli.fleet.ask import ask, incomplete
from kctl.cli.output import as_text, echo
from kctl.cli.table import Column, clean, columns, duration, render
from kctl.errors import OperationFailed, OperationUnknown
from kctl.fields import moment
from kctl.fleets import Fleet, find
from kctl_agent.errors import AgentTimeout, AgentUnreachable

_COLUMNS = columns(">id operation by via at >took state what-happened")
_POSITIONAL = ("name", "level")
_ANSWER_SECONDS = 60.0
_OPERATION_LOG_SECONDS = 10.0  # time-out for answers from the master's operation log alone
_POLL_SECONDS = 0.2

_ERRORS = {"failed": OperationFailed, "unknown": OperationUnknown}


def _operations(options: argparse.Namespace, env: Mapping[str, str]) -> None:
    params = {"local": True} if options.local else {}
    reply = ask(find(options.config, env), "operations", params, _OPERATION_LOG_SECONDS, of_master=True)
    rows = reply.result["rows"]
    if options.output != "table":
        echo(as_text(reply.result, options.output))
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
    # Such as `seek --topic orders --to latest --dry-run` or `scale workers=3`.
    name, params = operation["operation"].replace("_", "-"), operation["params"]
    if name == "scale":
        return " ".join([name, *(f"{kind}={count}" for kind, count in params.items())])
    words = [str(params[key]).replace(",", " ") for key in _POSITIONAL if key in params]
    for key, value in params.items():
        if key not in _POSITIONAL and value is not False:
            words.append(f"--{key.replace('_', '-')}" + ("" if value is True else f" {value}"))
    return " ".join([name, *words])


def _operation(options: argparse.Namespace, env: Mapping[str, str]) -> None:
    fleet = find(options.config, env)
    if options.cancel:
        ask(fleet, "cancel", {"id": options.id}, _OPERATION_LOG_SECONDS)
    operation = asked(fleet, options.id)
    operation = follow(fleet, operation) if options.wait or options.cancel else operation
    if options.cancel and operation["state"] == "failed":
        ended = f"operation {options.id} has ended: {clean(operation['text'])}"
        echo(ended if options.output == "table" else as_text(operation, options.output))
    else:
        show(operation, options.output)


def carry_out(
    fleet: Fleet, name: str, params: Mapping[str, Any], output: str, *, deadline: float | None, wait: bool = True
) -> None:
    """Submits an operation, optionally waits for its end, and prints its state. Raises OperationFailed,
    OperationUnknown, and the errors of `ask`."""
    operation = submit(fleet, name, params, deadline)
    show(follow(fleet, operation) if wait else operation, output)


def submit(fleet: Fleet, name: str, params: Mapping[str, Any], deadline: float | None = None) -> dict[str, Any]:
    """Submits an operation, and returns it even if it still runs. Raises OperationUnknown, and the errors of `ask`."""
    given = params if deadline is None else {**params, "deadline_seconds": deadline}
    try:
        return ask(fleet, name, given, _ANSWER_SECONDS).result
    except (AgentTimeout, AgentUnreachable) as error:
        raise OperationUnknown(f"{name}: it may still happen: {error}; `kctl operations` shows it") from error


def asked(fleet: Fleet, id_: str) -> dict[str, Any]:
    return ask(fleet, "operation", {"id": id_}, _ANSWER_SECONDS, of_master=True).result


def follow(fleet: Fleet, operation: dict[str, Any]) -> dict[str, Any]:
    """Returns the operation when it has ended. Until then, prints its progress on stderr."""
    shown, pause = "", Event()
    while operation["state"] == "running":
        if operation["text"] and operation["text"] != shown:
            shown = operation["text"]
            sys.stderr.write(f"{clean(shown)}\n")
        pause.wait(_POLL_SECONDS)
        operation = asked(fleet, operation["id"])
    return operation


def show(operation: dict[str, Any], output: str) -> None:
    """Prints the operation's state. Raises OperationFailed for `failed`, and OperationUnknown for `unknown`."""
    if output != "table":
        echo(as_text(operation, output))
    elif operation["state"] == "running":
        text = f": {clean(operation['text'])}" if operation["text"] else ""
        echo(f"operation {operation['id']} is in progress{text}; to follow it: `kctl operation {operation['id']}`")
    elif operation["state"] == "done":
        echo(clean(operation["text"]))
    if operation["state"] in _ERRORS:
        raise _ERRORS[operation["state"]](
            f"operation {operation['id']}, {operation['operation']}: {clean(operation['text'])}"
        )


COMMAND = Command(
    "operations",
    "List the last 500 operations, newest first.",
    (CONFIG, Option(("--local",), "do not ask other hosts of the fleet", "flag"), OUTPUT),
    details="Shows what was requested, by which user (`by`), over the socket or HTTP (`via`), when, and how it ended.",
    run=_operations,
)
OPERATION = Command(
    "operation",
    "Show the progress of an operation.",
    (
        Option(("ID",), "the id that was printed when the operation was submitted", is_required=True),
        CONFIG,
        Option(("--cancel",), "end it, and show the outcome", "flag"),
        Option(("--wait",), "wait until it ends, and show its progress", "flag"),
        OUTPUT,
    ),
    details="Exit code 1: the operation has failed; 3: its outcome is unknown, and it may still take effect. After "
    "`--cancel`, the outcome `failed` means that the operation has ended and has no later effect.",
    run=_operation,
)
