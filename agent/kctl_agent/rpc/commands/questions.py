"""The questions of a process: each answers with a reply of the last snapshot, with current ages. `ping` proves that an
agent answers; a successful connect proves nothing."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from kctl_agent.errors import NotReady
from kctl_agent.replies.describe import Method, MethodsReply
from kctl_agent.replies.encode import encoded
from kctl_agent.replies.questions import QUESTIONS, Question, named
from kctl_agent.replies.workers import PingReply
from kctl_agent.rpc.commands.base import AgentCommand
from kctl_agent.rpc.operations import Inbox
from kctl_agent.rpc.snapshot import Snapshot
from kctl_agent.rpc.wire import JsonObject
from kctl_agent.version import __version__

_OLD_SECONDS = 15.0


def _command(name: str, question: Question) -> AgentCommand:
    """The answer raises NotReady if the reply does not exist yet and an empty one would be wrong."""
    kind: type = named(question.reply)

    def answer(snapshot: Snapshot, _params: JsonObject, now: float) -> JsonObject:
        reply = snapshot.reply(kind)
        if reply is None and question.not_yet:
            raise NotReady(f"{snapshot.worker.name} {question.not_yet} yet: ask again")
        document: JsonObject = encoded(kind() if reply is None else reply, now - snapshot.published_at)
        return document

    return AgentCommand(name, answer, question.summary)


ANSWERED: Final = {name: _command(name, each) for name, each in QUESTIONS.items() if name not in ("ping", "describe")}


def with_describe(commands: Mapping[str, AgentCommand]) -> dict[str, AgentCommand]:
    table = dict(commands)

    def answer(_snapshot: Snapshot, _params: JsonObject, _now: float) -> JsonObject:
        document: JsonObject = encoded(MethodsReply(tuple(_described(each) for _, each in sorted(table.items()))))
        return document

    summary = QUESTIONS["describe"].summary
    table["describe"] = AgentCommand("describe", answer, summary, deadline_ms=1000, needs_snapshot=False)
    return table


def _described(command: AgentCommand) -> Method:
    return Method(command.method, command.name, command.summary, command.params, command.deadline_ms, command.changes)


def _ping(snapshot: Snapshot, _params: JsonObject, now: float, taken_at: float | None = None) -> JsonObject:
    """`taken_at` is when the main thread last took operations."""
    worker = snapshot.worker
    document: JsonObject = encoded(
        PingReply(
            os.getpid(),
            worker.name,
            __version__,
            worker.state,
            worker.batches_total,
            _lag(snapshot, now),
            snapshot.progress,
            None if taken_at is None else max(now - taken_at, 0.0),
            worker.waiting_for,
        )
    )
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


PING = AgentCommand("ping", _ping, QUESTIONS["ping"].summary, deadline_ms=1000, needs_snapshot=False)


def ping_of(inbox: Inbox) -> AgentCommand:
    """A ping that also reports the main thread's last turn. Not from the snapshot: the thread that publishes it may
    wait for a storage while the main thread runs."""

    def measured(snapshot: Snapshot, params: JsonObject, now: float) -> JsonObject:
        return _ping(snapshot, params, now, inbox.taken_at)

    return replace(PING, answer=measured)
