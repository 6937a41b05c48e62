"""The operations that an agent takes. Each is accepted at once; `operation` shows its outcome, `cancel` drops it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Final

from kctl_agent.errors import CommandFailed
from kctl_agent.replies.describe import Param
from kctl_agent.rpc.commands.base import AgentCommand, Answer
from kctl_agent.rpc.commands.diagnosis import LOG_LEVEL, STACK_DUMP
from kctl_agent.rpc.messages import printable_name
from kctl_agent.rpc.operations import AcceptedOperation, Inbox, Outcome, scope_of
from kctl_agent.rpc.params import listed, param
from kctl_agent.rpc.snapshot import Snapshot
from kctl_agent.rpc.wire import JsonObject

_ID: Final = Param("operation", "string", "the id under which its outcome is asked for", required=True)
_UNTIL: Final = Param("until", "number", "CLOCK_MONOTONIC of this host in seconds: not begun from then on")


class AgentOperation:
    """A frozen dataclass whose fields are the operation's parameters."""

    __slots__ = ()
    rpc: ClassVar[str]

    def on_accepted(self, inbox: Inbox) -> None:
        """Runs at once, on the agent's thread; if it raises, the operation is not accepted."""


@dataclass(frozen=True, slots=True)
class PauseScopes(AgentOperation):
    """Read everything except these scopes, until the next `pause`; no scopes: resume."""

    rpc: ClassVar = "pause"
    scopes: list[JsonObject] = param("topic, partition, by, since; topic null: everything")

    def on_accepted(self, inbox: Inbox) -> None:
        inbox.pause([scope_of(each) for each in self.scopes])


@dataclass(frozen=True, slots=True)
class SeekPartition(AgentOperation):
    """Continue reading a partition at another offset, in group and storage."""

    rpc: ClassVar = "seek"
    topic: str = param("its topic")
    partition: int = param("its number")
    to: str = param("earliest, latest, an offset, or @milliseconds since 1970")
    dry_run: bool = param("only report what it would do", default=False)


def operation_commands(inbox: Inbox, *kinds: type[AgentOperation]) -> dict[str, AgentCommand]:
    cancel = AgentCommand(
        "cancel",
        _outcome(inbox.cancel),
        "drop an operation that has not begun; its outcome",
        (_ID,),
        changes=True,
        needs_snapshot=False,
    )
    accepted = [accepting(inbox, kind) for kind in kinds]
    return {each.name: each for each in (*accepted, outcome_command(inbox), cancel, LOG_LEVEL, STACK_DUMP)}


def outcome_command(inbox: Inbox) -> AgentCommand:
    return AgentCommand(
        "operation", _outcome(inbox.outcome), "what became of an operation", (_ID,), needs_snapshot=False
    )


def accepting(inbox: Inbox, kind: type[AgentOperation]) -> AgentCommand:
    params = listed(kind)

    def answer(_snapshot: Snapshot, given: JsonObject, _now: float) -> JsonObject:
        own = {each.name: given[each.name] for each in params if each.name in given}
        operation = AcceptedOperation(given["operation"], kind.rpc, own, given.get("until", math.inf))
        inbox.accept(operation, lambda: kind(**own).on_accepted(inbox))
        return {"accepted": True}

    summary = (kind.__doc__ or "").partition("\n")[0]
    return AgentCommand(kind.rpc, answer, summary, (_ID, _UNTIL, *params), changes=True, needs_snapshot=False)


def _outcome(find: Callable[[str], Outcome | None]) -> Answer:
    def answer(_snapshot: Snapshot, params: JsonObject, _now: float) -> JsonObject:
        outcome = find(params["operation"])
        if outcome is None:
            raise CommandFailed(
                f"no operation {printable_name(params['operation'])} is known here: it was started again since"
            )
        return outcome.to_json()

    return answer
