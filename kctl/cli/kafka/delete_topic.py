"""`kctl kafka delete-topic`"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from kctl.cli.kafka.changes import change, check_choice
from kctl.cli.kafka.cluster import connected
from kctl.cli.kafka.output import show
from kctl.errors import UsageError

if TYPE_CHECKING:
    from kctl.kafka.client.connection import ClusterConnection
    from kctl.kafka.client.layout import Topic

__all__ = ["run"]

_DELETED = ("topic", "partitions", "messages", "topic_id")


def run(options: argparse.Namespace, env: Mapping[str, str]) -> int:
    check_choice(options)
    name = options.topic
    with connected(options, env) as connection:
        from kctl.kafka.admin import delete_topic as delete
        from kctl.kafka.client.layout import require, topics_of

        topic = require(topics_of(connection.open([name])), name)
        if topic.is_internal:
            raise UsageError(f"{name} is a topic of Kafka itself: it is not deleted here")
        row = _row(connection, topic)
        shown = partial(show, options, _DELETED, [row])
        question = f"Delete topic {name} and all it holds?"

        def make() -> str:
            delete(connection, name)
            return f"topic {name} deleted"

        return change(options, env, connection, "delete-topic", question, shown, make, **row)


def _row(connection: ClusterConnection, topic: Topic) -> dict[str, Any]:
    """A row; `messages` as the offsets between start and end of the logs; None when a partition cannot be asked."""
    from kctl.kafka.offsets import EARLIEST, LATEST, log_offsets

    keys = [(topic.name, each.partition) for each in topic.partitions]
    starts, ends = (log_offsets(connection, {topic.name: topic}, keys, at) for at in (EARLIEST, LATEST))
    counts = [
        None if (end := ends[key].offset) is None or (start := starts[key].offset) is None else end - start
        for key in keys
    ]
    known = [count for count in counts if count is not None]
    return {
        "topic": topic.name,
        "partitions": len(keys),
        "messages": sum(known) if len(known) == len(counts) else None,
        "topic_id": topic.topic_id,
    }
