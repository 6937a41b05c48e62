"""Operations of the master of a fleet: submits one, follows it, and prints in one line what has happened."""

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
from kctl.rpc.reply import Reply
from kctl_agent.errors import AgentTimeout, AgentUnreachable
from kctl_agent.rpc.messages import reducer_method, wire_method

_ANSWER_SECONDS = 60.0
_OPERATION_LOG_SECONDS = 10.0
"""For what the master answers out of its operation log, without asking anybody."""
_POLL_SECONDS = 0.2

_ERRORS = {"failed": OperationFailed, "unknown": OperationUnknown}


def carry_out(
    fleet: Fleet, name: str, params: Mapping[str, Any], output: str, *, deadline: float | None, wait: bool = True
) -> None:
    """Submit an operation, wait for its end if asked to, print what has happened.

    Raises:
        CommandRejected: it was refused, nothing was changed.
        OperationFailed: it was begun and could not be carried out.
        OperationUnknown: it may still happen.
    """
    operation = submit(fleet, name, params, deadline)
    show(follow(fleet, operation) if wait else operation, output)


def submit(fleet: Fleet, name: str, params: Mapping[str, Any], deadline: float | None = None) -> dict[str, Any]:
    """The operation as it stands when it has ended, or is known to take long. Raises OperationUnknown."""
    given = {key: value for key, value in params.items() if value is not None}
    if deadline is not None:
        given["deadline_seconds"] = deadline
    try:
        return ask(fleet, name, reducer_method(name), given, _ANSWER_SECONDS).result
    except (AgentTimeout, AgentUnreachable) as error:
        raise OperationUnknown(f"{name}: it may still happen: {error}; `kctl operations` shows it") from error


def asked(fleet: Fleet, id_: str) -> dict[str, Any]:
    return ask(fleet, "operation", wire_method("operation"), {"id": id_}, _ANSWER_SECONDS).result


def all_operations(fleet: Fleet, *, is_local: bool = False) -> Reply:
    """`{"rows": […]}`, the newest operation first; of all hosts of the fleet."""
    params = {"local": True} if is_local else {}
    return ask(fleet, "operations", wire_method("operations"), params, _OPERATION_LOG_SECONDS)


def cancel_operation(fleet: Fleet, id_: str) -> None:
    ask(fleet, "cancel", reducer_method("cancel"), {"id": id_}, _OPERATION_LOG_SECONDS)


def follow(fleet: Fleet, operation: dict[str, Any]) -> dict[str, Any]:
    """The operation when it has ended; its progress goes to stderr."""
    shown, pause = "", Event()
    while operation["state"] == "running":
        if operation["text"] and operation["text"] != shown:
            shown = operation["text"]
            sys.stderr.write(f"{clean(shown)}\n")
        pause.wait(_POLL_SECONDS)
        operation = asked(fleet, operation["id"])
    return operation


def show(operation: dict[str, Any], output: str) -> None:
    """Print what became of an operation. Raises OperationFailed, OperationUnknown after it has printed one that failed
    as JSON or YAML; a table has only the sentence."""
    if output != "table":
        sys.stdout.write(f"{as_text(operation, output)}\n")
    elif operation["state"] == "running":
        text = f": {clean(operation['text'])}" if operation["text"] else ""
        sys.stdout.write(
            f"operation {operation['id']} is under way{text}; `kctl operation {operation['id']}` shows how it goes\n"
        )
    elif operation["state"] == "done":
        sys.stdout.write(f"{clean(operation['text'])}\n")
    if operation["state"] in _ERRORS:
        raise _ERRORS[operation["state"]](
            f"operation {operation['id']}, {operation['operation']}: {clean(operation['text'])}"
        )
