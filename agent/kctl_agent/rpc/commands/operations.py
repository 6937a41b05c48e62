"""The operations that an agent takes. Each is accepted at once; `operation` shows its outcome, `cancel` drops it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from kctl_agent.errors import CommandFailed
from kctl_agent.replies.describe import Param
from kctl_agent.rpc.commands.base import Answer, Command
from kctl_agent.rpc.commands.log_level import LOG_LEVEL
from kctl_agent.rpc.commands.stack_dump import STACK_DUMP
from kctl_agent.rpc.messages import printable_name
from kctl_agent.rpc.operations import Inbox, Operation, Outcome, scope_of
from kctl_agent.rpc.snapshot import Snapshot
from kctl_agent.rpc.wire import JsonObject

__all__ = ["OPERATION_ID", "accepting", "operation_commands", "outcome_command"]

OPERATION_ID: Final = Param("operation", "string", "the id under which its outcome is asked for", required=True)
_UNTIL: Final = Param("until", "number", "CLOCK_MONOTONIC of this host in seconds: not begun from then on")


def operation_commands(inbox: Inbox, *, can_seek: bool) -> dict[str, Command]:
    """The operations of a worker (`can_seek`) or sinker, bound to what its owning thread takes them from."""
    commands = [
        Command(
            "pause",
            accepting(inbox, "pause", lambda params: inbox.pause([scope_of(each) for each in params["scopes"]])),
            "read exactly what these scopes leave, until the next `pause`; none: resume",
            (
                OPERATION_ID,
                _UNTIL,
                Param("scopes", "array", "topic, partition, by, since; topic null: everything", required=True),
            ),
            changes=True,
            needs_snapshot=False,
        ),
        outcome_command(inbox),
        Command(
            "cancel",
            _outcome(inbox.cancel),
            "drop an operation that has not begun; its outcome",
            (OPERATION_ID,),
            changes=True,
            needs_snapshot=False,
        ),
        LOG_LEVEL,
        STACK_DUMP,
    ]
    if can_seek:
        commands.append(
            Command(
                "seek",
                accepting(inbox, "seek"),
                "go on reading a partition elsewhere, group and storage alike",
                (
                    OPERATION_ID,
                    _UNTIL,
                    Param("topic", "string", "its topic", required=True),
                    Param("partition", "integer", "its number", required=True),
                    Param("to", "string", "earliest, latest, an offset, or @milliseconds since 1970", required=True),
                    Param("dry_run", "boolean", "only report what it would do"),
                ),
                changes=True,
                needs_snapshot=False,
            )
        )
    return {command.name: command for command in commands}


def outcome_command(inbox: Inbox) -> Command:
    """`operation`, by which the outcome of what was accepted is asked for."""
    return Command(
        "operation", _outcome(inbox.outcome), "what became of an operation", (OPERATION_ID,), needs_snapshot=False
    )


def accepting(inbox: Inbox, rpc: str, first: Callable[[JsonObject], None] = lambda _: None) -> Answer:
    """The answer of an operation: accepted, after `first` was called with its parameters on the agent's thread."""

    def answer(_snapshot: Snapshot, params: JsonObject, _now: float) -> JsonObject:
        operation = Operation(params["operation"], rpc, params, params.get("until", math.inf))
        inbox.accept(operation, lambda: first(params))
        return {"accepted": True}

    return answer


def _outcome(find: Callable[[str], Outcome | None]) -> Answer:
    def answer(_snapshot: Snapshot, params: JsonObject, _now: float) -> JsonObject:
        outcome = find(params["operation"])
        if outcome is None:
            raise CommandFailed(
                f"no operation {printable_name(params['operation'])} is known here: it was started again since"
            )
        return outcome.to_json()

    return answer
