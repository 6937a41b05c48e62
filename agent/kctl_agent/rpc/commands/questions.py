"""The questions that a process answers: each a reply of its last snapshot, with the ages of now."""

from __future__ import annotations

from typing import Final

from kctl_agent.errors import NotReady
from kctl_agent.replies.encode import encoded
from kctl_agent.replies.questions import QUESTIONS, Question, named
from kctl_agent.rpc.commands.base import AgentCommand
from kctl_agent.rpc.snapshot import Snapshot
from kctl_agent.rpc.wire import JsonObject


def _command(name: str, question: Question) -> AgentCommand:
    """Its answer raises NotReady where the reply is not there yet, and an empty one would be a lie."""
    kind: type = named(question.reply)

    def answer(snapshot: Snapshot, _params: JsonObject, now: float) -> JsonObject:
        reply = snapshot.reply(kind)
        if reply is None and question.not_yet:
            raise NotReady(f"{snapshot.worker.name} {question.not_yet} yet: ask again")
        document: JsonObject = encoded(kind() if reply is None else reply, now - snapshot.published_at)
        return document

    return AgentCommand(name, answer, question.summary)


ANSWERED: Final = {name: _command(name, each) for name, each in QUESTIONS.items() if name not in ("ping", "describe")}
"""All but those that need no snapshot, each of which has a file of its own."""
