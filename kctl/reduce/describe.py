"""`onDescribe`: every method that some agent serves."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from kctl.reduce.base import Answer, BrokerSnapshot, newest_rows
from kctl_agent.replies.describe import MethodsReply

__all__ = ["reduce"]


def reduce(answers: Sequence[Answer[MethodsReply]], _brokers: BrokerSnapshot) -> MethodsReply:
    """A union by method, sorted; the newest answer wins."""
    methods = newest_rows([answer.of(answer.result.methods) for answer in answers], attrgetter("method"))
    return MethodsReply(tuple(methods[name] for name in sorted(methods)))
