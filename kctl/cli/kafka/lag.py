"""`kctl kafka lag`"""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from kctl.cli.kafka.cluster import connected, fleet_group
from kctl.cli.kafka.output import show
from kctl.cli.kafka.topic_arguments import required_topics
from kctl.errors import KctlError

__all__ = ["run"]

_LAG = ("group", "topic", "partition", "current_offset", "log_end_offset", "lag", "consumer_id", "host", "client_id")


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
        found = [row for row in found if row.current_offset is not None or row.consumer_id is not None]
    show(options, _LAG, [row._asdict() for row in found], [*problems, *more])
    return 0
