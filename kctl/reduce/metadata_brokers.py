"""`onMetadataBrokers`: the brokers that any worker knows of."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from kctl.reduce.base import Answer, BrokerSnapshot, newest_rows
from kctl_agent.replies.metadata import BrokersReply

__all__ = ["reduce"]


def reduce(answers: Sequence[Answer[BrokersReply]], _brokers: BrokerSnapshot) -> BrokersReply:
    """A union by node id, sorted; the newest answer wins."""
    brokers = newest_rows([answer.of(answer.result.rows) for answer in answers], attrgetter("node_id"))
    return BrokersReply(tuple(brokers[node_id] for node_id in sorted(brokers)))
