"""The questions of a process: each answers with a reply of the last snapshot, with current ages."""

from __future__ import annotations

from typing import Final

from kctl_agent.errors import NotReady
from kctl_agent.replies.encode import encoded
from kctl_agent.replies.questions import QUESTIONS, Question, named
from kctl_agent.rpc.commands.base import AgentCommand
from kctl_agent.rpc.snapshot import Snapshot
from kctl_agent.rpc.wire import JsonObject


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
