"""Submits an operation to the master of a fleet, follows it, and prints the outcome in one line."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from threading import Event
from typing import Any

from kctl.cli.fleet.ask import ask
from kctl.cli.output import as_text
from kctl.cli.table import clean
from kctl.errors import OperationFailed, OperationUnknown
from kctl.fleets import Fleet
from kctl.rpc.client import Reply
from kctl_agent.errors import AgentTimeout, AgentUnreachable

_ANSWER_SECONDS = 60.0
_OPERATION_LOG_SECONDS = 10.0
"""Time-out for answers from the master's operation log alone."""
_POLL_SECONDS = 0.2

_ERRORS = {"failed": OperationFailed, "unknown": OperationUnknown}


def carry_out(
    fleet: Fleet, name: str, params: Mapping[str, Any], output: str, *, deadline: float | None, wait: bool = True
) -> None:
    """Submits an operation, optionally waits for its end, and prints the outcome. Raises CommandRejected (nothing was
    changed), OperationFailed (it began and failed), OperationUnknown (it may still happen)."""
    operation = submit(fleet, name, params, deadline)
    show(follow(fleet, operation) if wait else operation, output)


def submit(fleet: Fleet, name: str, params: Mapping[str, Any], deadline: float | None = None) -> dict[str, Any]:
    """Returns the operation when it has ended or is known to take long. Raises OperationUnknown."""
    given = {key: value for key, value in params.items() if value is not None}
    if deadline is not None:
        given["deadline_seconds"] = deadline
    try:
        return ask(fleet, name, given, _ANSWER_SECONDS).result
    except (AgentTimeout, AgentUnreachable) as error:
        raise OperationUnknown(f"{name}: it may still happen: {error}; `kctl operations` shows it") from error


def asked(fleet: Fleet, id_: str) -> dict[str, Any]:
    return ask(fleet, "operation", {"id": id_}, _ANSWER_SECONDS, of_master=True).result


def all_operations(fleet: Fleet, *, is_local: bool = False) -> Reply:
    """`{"rows": […]}`, newest first, of all hosts of the fleet."""
    params = {"local": True} if is_local else {}
    return ask(fleet, "operations", params, _OPERATION_LOG_SECONDS, of_master=True)


def cancel_operation(fleet: Fleet, id_: str) -> None:
    ask(fleet, "cancel", {"id": id_}, _OPERATION_LOG_SECONDS)


def follow(fleet: Fleet, operation: dict[str, Any]) -> dict[str, Any]:
    """Prints progress on stderr; returns the operation when it has ended."""
    shown, pause = "", Event()
    while operation["state"] == "running":
        if operation["text"] and operation["text"] != shown:
            shown = operation["text"]
            sys.stderr.write(f"{clean(shown)}\n")
        pause.wait(_POLL_SECONDS)
        operation = asked(fleet, operation["id"])
    return operation


def show(operation: dict[str, Any], output: str) -> None:
    """Prints the outcome. Raises OperationFailed, OperationUnknown, also after printing one as JSON or YAML."""
    if output != "table":
        sys.stdout.write(f"{as_text(operation, output)}\n")
    elif operation["state"] == "running":
        text = f": {clean(operation['text'])}" if operation["text"] else ""
        sys.stdout.write(
            f"operation {operation['id']} is in progress{text}; to follow it: `kctl operation {operation['id']}`\n"
        )
    elif operation["state"] == "done":
        sys.stdout.write(f"{clean(operation['text'])}\n")
    if operation["state"] in _ERRORS:
        raise _ERRORS[operation["state"]](
            f"operation {operation['id']}, {operation['operation']}: {clean(operation['text'])}"
        )
