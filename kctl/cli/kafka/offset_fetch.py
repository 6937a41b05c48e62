"""`kctl kafka offset-fetch`"""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from kctl.cli.kafka.cluster import connected
from kctl.cli.kafka.output import show
from kctl.cli.kafka.topic_arguments import required_topics
from kctl.errors import KctlError

__all__ = ["run"]

_COMMITTED = (
    ("group", False),
    ("topic", False),
    ("partition", True),
    ("committed_offset", True),
    ("leader_epoch", True),
    ("metadata", False),
)


def run(options: argparse.Namespace, env: Mapping[str, str]) -> int:
    with connected(options, env) as connection:
        from kctl.kafka.groups import describe_groups
        from kctl.kafka.offsets import committed

        topics = required_topics(connection, options.topic)
        only = None if topics is None else [(t.name, p.partition) for t in topics.values() for p in t.partitions]
        found = committed(connection, {options.group: only})[options.group]
        if isinstance(found, KctlError):
            raise found
        if not any(each.offset is not None for each in found.values()):
            [described] = describe_groups(connection, [options.group])
            if described.error is not None:
                raise described.error
    rows = [
        {
            "group": options.group,
            "topic": topic,
            "partition": partition,
            "committed_offset": known.offset,
            "leader_epoch": known.leader_epoch,
            "metadata": known.metadata,
            "error": known.error,
        }
        for (topic, partition), known in sorted(found.items())
    ]
    show(options, _COMMITTED, rows)
    return 0
