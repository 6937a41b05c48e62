"""`kctl kafka offset-fetch`"""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from kctl.cli.kafka.cluster import connected
from kctl.cli.kafka.committed import committed_rows
from kctl.cli.kafka.output import show
from kctl.cli.kafka.topic_arguments import required_topics

__all__ = ["run"]

_COMMITTED = ("group", "topic", "partition", "committed_offset", "leader_epoch", "metadata")


def run(options: argparse.Namespace, env: Mapping[str, str]) -> int:
    with connected(options, env) as connection:
        from kctl.kafka.groups import describe_groups

        topics = required_topics(connection, options.topic)
        only = None if topics is None else [(t.name, p.partition) for t in topics.values() for p in t.partitions]
        rows = committed_rows(connection, options.group, only)
        if not any(row["committed_offset"] is not None for row in rows):
            [described] = describe_groups(connection, [options.group])
            if described.error is not None:
                raise described.error
    show(options, _COMMITTED, rows)
    return 0
