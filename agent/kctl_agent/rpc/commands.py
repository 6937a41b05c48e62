"""The commands of an agent: name, answer function, and what `describe` shows of each.

An agent answers a question from the last snapshot, and adds the snapshot's age to all ages in the answer. The agent
accepts operations at once. The main thread runs them. The command `operation` returns the outcome, and `cancel` drops
an operation that has not begun.
"""

from __future__ import annotations

import logging
import math
import os
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Final, TypeAlias

from kctl_agent.errors import BadParams, CommandFailed, NotReady
from kctl_agent.replies.describe import Method, MethodsReply, Param
from kctl_agent.replies.encode import encoded
from kctl_agent.replies.questions import QUESTIONS, Question, named
from kctl_agent.replies.workers import PingReply
from kctl_agent.rpc.messages import printable_name, wire_method
from kctl_agent.rpc.operations import AcceptedOperation, Inbox, Outcome, scope_of
from kctl_agent.rpc.params import listed, param
from kctl_agent.rpc.snapshot import Snapshot
from kctl_agent.rpc.wire import JsonObject
from kctl_agent.version import __version__

Answer: TypeAlias = Callable[[Snapshot, JsonObject, float], JsonObject]
"""(snapshot, checked params, now by `time.monotonic()`) -> result. Runs on the agent's thread and must not wait."""


@dataclass(frozen=True, slots=True)
class AgentCommand:
    """A method of an agent. `changes` is True if it changes something, and False for a question."""

    name: str
    answer: Answer
    summary: str
    params: tuple[Param, ...] = ()
    changes: bool = False
    deadline_ms: int = 2000
    needs_snapshot: bool = False

    @property
    def method(self) -> str:
        return wire_method(self.name)


_LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR")


def _set_log_level(_snapshot: Snapshot, params: JsonObject, _now: float) -> JsonObject:
    level = params["level"].upper()
    if level not in _LEVELS:
        raise BadParams(f"a log level is one of {', '.join(_LEVELS)}")
    root = logging.getLogger()
    before = logging.getLevelName(root.level)
    root.setLevel(level)
    return {"before": before, "level": level}


_LEVEL: Final = Param("level", "string", ", ".join(_LEVELS), required=True)
LOG_LEVEL = AgentCommand("log_level", _set_log_level, "set the log level from now on", (_LEVEL,), changes=True)


def _stacks(_snapshot: Snapshot, _params: JsonObject, _now: float) -> JsonObject:
    # Without values of variables, because they may contain messages.
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    threads = [
        {
            "thread": names.get(ident, f"unknown {ident}"),
            "stack": "".join(traceback.format_list(traceback.extract_stack(frame, limit=60))),
        }
        for ident, frame in sys._current_frames().items()  # noqa: SLF001 - the only way to ask
    ]
    return {"threads": sorted(threads, key=lambda each: str(each["thread"]))}


STACK_DUMP = AgentCommand("stack_dump", _stacks, "the stack of every thread")


_OLD_SECONDS = 15.0


def _command(name: str, question: Question) -> AgentCommand:
    kind: type = named(question.reply)

    def answer(snapshot: Snapshot, _params: JsonObject, now: float) -> JsonObject:
        reply = snapshot.reply(kind)
        if reply is None and question.not_yet:
            raise NotReady(f"{snapshot.worker.name} {question.not_yet} yet: ask again")
        document: JsonObject = encoded(kind() if reply is None else reply, now - snapshot.published_at)
        return document

    return AgentCommand(name, answer, question.summary, needs_snapshot=True)


ANSWERED: Final = {name: _command(name, each) for name, each in QUESTIONS.items() if name not in ("ping", "describe")}


def with_describe(commands: Mapping[str, AgentCommand]) -> dict[str, AgentCommand]:
    table = dict(commands)

    def answer(_snapshot: Snapshot, _params: JsonObject, _now: float) -> JsonObject:
        methods = (
            Method(each.method, name, each.summary, each.params, each.deadline_ms, each.changes)
            for name, each in sorted(table.items())
        )
        document: JsonObject = encoded(MethodsReply(tuple(methods)))
        return document

    summary = QUESTIONS["describe"].summary
    table["describe"] = AgentCommand("describe", answer, summary, deadline_ms=1000)
    return table


def _ping(snapshot: Snapshot, _params: JsonObject, now: float, taken_at: float | None = None) -> JsonObject:
    worker, age = snapshot.worker, None if taken_at is None else max(now - taken_at, 0.0)
    known = os.getpid(), worker.name, __version__, worker.state, worker.batches_total
    document: JsonObject = encoded(PingReply(*known, _lag(snapshot, now), snapshot.progress, age, worker.waiting_for))
    return document


def _lag(snapshot: Snapshot, now: float) -> int | None:
    total, oldest = 0, _OLD_SECONDS - (now - snapshot.published_at)
    partitions = snapshot.partitions
    for row in partitions:
        if (row.topic, row.partition) in snapshot.not_read:
            continue
        if row.age_seconds is None or row.age_seconds > oldest or row.lag is None:
            return None
        total += row.lag
    return total if partitions else None


# Only a ping proves that an agent answers: the kernel accepts connections even if the agent hangs.
PING = AgentCommand("ping", _ping, QUESTIONS["ping"].summary, deadline_ms=1000)


def ping_of(inbox: Inbox) -> AgentCommand:
    """Makes a ping that also reports how long ago the main thread last took operations from the inbox."""
    return replace(PING, answer=lambda snapshot, params, now: _ping(snapshot, params, now, inbox.taken_at))


_ID: Final = Param("operation", "string", "the id by which to ask for the outcome", required=True)
_UNTIL: Final = Param(
    "until", "number", "CLOCK_MONOTONIC of this host, in seconds, after which the operation does not begin"
)


class AgentOperation:
    """The base of operations. `describe` shows a subclass's fields as parameters and its docstring's first line."""

    __slots__ = ()
    rpc: ClassVar[str]

    def on_accepted(self, inbox: Inbox) -> None:
        """Runs on the agent's thread when the request arrives. If it raises, the operation is not accepted."""


@dataclass(frozen=True, slots=True)
class PauseScopes(AgentOperation):
    """Until the next `pause`, pause these scopes and read everything else. Without scopes, resume everything."""

    rpc: ClassVar = "pause"
    scopes: list[JsonObject] = param("topic, partition, by, since; a null topic pauses everything")

    def on_accepted(self, inbox: Inbox) -> None:
        inbox.pause([scope_of(each) for each in self.scopes])


@dataclass(frozen=True, slots=True)
class SeekPartition(AgentOperation):
    """Move a partition's committed offset and stored offset, and continue reading there."""

    rpc: ClassVar = "seek"
    topic: str = param("its topic")
    partition: int = param("its number")
    to: str = param("earliest, latest, an offset, or @milliseconds since 1970")
    dry_run: bool = param("only report what the seek would do", default=False)


def operation_commands(inbox: Inbox, *kinds: type[AgentOperation]) -> dict[str, AgentCommand]:
    summary = "cancel an operation that has not begun, and report the outcome"
    cancel = AgentCommand("cancel", _outcome(inbox.cancel), summary, (_ID,), changes=True)
    accepted = [accepting(inbox, kind) for kind in kinds]
    return {each.name: each for each in (*accepted, outcome_command(inbox), cancel, LOG_LEVEL, STACK_DUMP)}


def outcome_command(inbox: Inbox) -> AgentCommand:
    return AgentCommand("operation", _outcome(inbox.outcome), "the outcome of an operation", (_ID,))


def accepting(inbox: Inbox, kind: type[AgentOperation]) -> AgentCommand:
    params = listed(kind)

    def answer(_snapshot: Snapshot, given: JsonObject, _now: float) -> JsonObject:
        own = {each.name: given[each.name] for each in params if each.name in given}
        operation = AcceptedOperation(given["operation"], kind.rpc, own, given.get("until", math.inf))
        inbox.accept(operation, lambda: kind(**own).on_accepted(inbox))
        return {"accepted": True}

    summary = (kind.__doc__ or "").partition("\n")[0]
    return AgentCommand(kind.rpc, answer, summary, (_ID, _UNTIL, *params), changes=True)


def _outcome(find: Callable[[str], Outcome | None]) -> Answer:
    def answer(_snapshot: Snapshot, params: JsonObject, _now: float) -> JsonObject:
        outcome = find(params["operation"])
        if outcome is None:
            raise CommandFailed(
                f"no operation {printable_name(params['operation'])} is known here: this process has restarted since"
            )
        return outcome.to_json()

    return answer


COMMANDS: Final = with_describe({PING.name: PING, **ANSWERED})
"""A name from the wire is only a key of this table; it never selects a module, class or attribute."""
