"""`kctl kafka lag`"""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from kctl.cli.kafka.cluster import connected, fleet_group
from kctl.cli.kafka.output import show
from kctl.cli.kafka.topic_arguments import required_topics
from kctl.errors import KctlError

__all__ = ["run"]

_LAG = (
    ("group", False),
    ("topic", False),
    ("partition", True),
    ("current_offset", True),
    ("log_end_offset", True),
    ("lag", True),
    ("consumer_id", False),
    ("host", False),
    ("client_id", False),
)


def run(options: argparse.Namespace, env: Mapping[str, str]) -> int:
    groups = options.group or ([] if options.all else [fleet_group(options, env, "-g GROUP, --all")])
    with connected(options, env) as connection:
        from kctl.kafka.lag import read_lag

        topics = required_topics(connection, options.topic)
        problems: list[KctlError] = []
        if options.all:
            from kctl.kafka.groups import list_groups

            listed, problems = list_groups(connection)
            groups = [*groups, *(group.group for group in listed)]
        found, more = read_lag(connection, groups, topics, is_read_committed=options.read_committed)
    if options.all and options.topic:
        found = [row for row in found if row.committed is not None or row.member_id is not None]
    rows = [
        {
            "group": row.group,
            "topic": row.topic,
            "partition": row.partition,
            "current_offset": row.committed,
            "log_end_offset": row.end,
            "lag": row.lag,
            "consumer_id": row.member_id,
            "host": row.host,
            "client_id": row.client_id,
            "error": row.error,
        }
        for row in found
    ]
    show(options, _LAG, rows, [*problems, *more])
    return 0
