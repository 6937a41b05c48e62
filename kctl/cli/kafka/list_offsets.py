"""`kctl kafka list-offsets`"""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from kctl.cli.kafka.cluster import connected
from kctl.cli.kafka.output import show
from kctl.cli.kafka.topic_arguments import wanted_partitions
from kctl.errors import UsageError
from kctl.kafka.target import milliseconds

__all__ = ["run"]

_OFFSETS = ("topic", "partition", "offset", "timestamp")


def run(options: argparse.Namespace, env: Mapping[str, str]) -> int:
    if not options.topic:
        raise UsageError("give a topic: -t TOPIC; see `kctl kafka list-offsets --help`")
    names = {"earliest": -2, "latest": -1, "max-timestamp": -3}
    at = names.get(options.time)
    if at is None:
        at = milliseconds(options.time)
    with connected(options, env) as connection:
        from kctl.kafka.offsets import log_offsets

        topics, partitions = wanted_partitions(connection, options.topic)
        offsets = log_offsets(connection, topics, partitions, at, is_read_committed=options.read_committed)
    rows = [
        {"topic": topic, "partition": partition, **offsets[topic, partition]._asdict()}
        for topic, partition in sorted(partitions)
    ]
    show(options, _OFFSETS, rows)
    return 0
