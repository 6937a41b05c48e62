"""`onPing`: the processes that answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kctl.reduce.base import Answer, BrokerSnapshot, per_sender
from kctl.rows.workers import Pings
from kctl_agent.replies.ping import PingReply


def reduce(answers: Sequence[Answer[PingReply]], _brokers: BrokerSnapshot) -> Pings:
    """Lists all pings. Each is named as its socket, whatever name it gives itself."""
    return Pings(tuple(replace(answer.result, name=answer.sender) for answer in per_sender(answers)))
