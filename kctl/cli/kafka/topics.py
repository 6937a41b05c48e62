"""`kctl kafka topics`"""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from kctl.cli.kafka.cluster import connected
from kctl.cli.kafka.output import show

__all__ = ["run"]

_TOPICS = ("topic", "partitions", "replicas", "under_replicated", "no_leader", "internal")


def run(options: argparse.Namespace, env: Mapping[str, str]) -> int:
    with connected(options, env) as connection:
        from kctl.kafka.client.layout import topics_of
        from kctl.kafka.client.reasons import name_of_code

        topics = topics_of(connection.open(None)).values()
    rows = [
        {
            "topic": topic.name,
            "partitions": len(topic.partitions),
            "replicas": max((len(each.replicas) for each in topic.partitions), default=None),
            "under_replicated": sum(each.is_under_replicated for each in topic.partitions),
            "no_leader": sum(each.leader is None for each in topic.partitions),
            "internal": topic.is_internal,
            "topic_id": topic.topic_id,
            "error": name_of_code(topic.error_code),
        }
        for topic in topics
    ]
    show(options, _TOPICS, rows)
    return 0
