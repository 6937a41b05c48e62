"""`onMetadataTopics`: leader and replicas of each partition that any worker knows of."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from kctl.reduce.base import Answer, BrokerSnapshot, newest_rows
from kctl_agent.replies.metadata import TopicsReply

__all__ = ["reduce"]


def reduce(answers: Sequence[Answer[TopicsReply]], _brokers: BrokerSnapshot) -> TopicsReply:
    """A union by topic and partition, sorted; the newest answer wins."""
    partitions = newest_rows([answer.of(answer.result.rows) for answer in answers], attrgetter("topic", "partition"))
    return TopicsReply(tuple(partitions[key] for key in sorted(partitions)))
