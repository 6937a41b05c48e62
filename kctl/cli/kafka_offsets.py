"""`kctl kafka lag`, `list-offsets` and `offset-fetch`"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kctl.cli.kafka_cluster import connected, fleet_kafka
from kctl.cli.kafka_output import show
from kctl.errors import KctlError, UsageError
from kctl.kafka.target import milliseconds, topic_and_partitions

if TYPE_CHECKING:
    from kctl.kafka.connection import Connection
    from kctl.kafka.layout import Partition, Topic

__all__ = ["lag", "list_offsets", "offset_fetch", "wanted_partitions"]

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
_OFFSETS = (("topic", False), ("partition", True), ("offset", True), ("timestamp", True))
_COMMITTED = (
    ("group", False),
    ("topic", False),
    ("partition", True),
    ("committed_offset", True),
    ("leader_epoch", True),
    ("metadata", False),
)


def lag(options: argparse.Namespace, env: Mapping[str, str]) -> int:
    groups = options.group or ([] if options.all_groups else [fleet_kafka(options, env).group])
    with connected(options, env) as connection:
        from kctl.kafka.lag import read_lag

        topics = _required(connection, options.topic)
        problems: list[KctlError] = []
        if options.all_groups:
            from kctl.kafka.groups import list_groups

            listed, problems = list_groups(connection)
            groups = [*groups, *(group.group for group in listed)]
        found, more = read_lag(connection, groups, topics, is_read_committed=options.read_committed)
    if options.all_groups and options.topic:
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


def list_offsets(options: argparse.Namespace, env: Mapping[str, str]) -> int:
    if not options.topic:
        raise UsageError("say of which topic: -t TOPIC; see `kctl kafka list-offsets --help`")
    names = {"earliest": -2, "latest": -1, "max-timestamp": -3}
    at = names.get(options.time)
    if at is None:
        at = milliseconds(options.time)
    with connected(options, env) as connection:
        from kctl.kafka.offsets import log_offsets

        topics, wanted = wanted_partitions(connection, options.topic)
        found = log_offsets(connection, topics, wanted, at, is_read_committed=options.read_committed)
    rows = [
        {
            "topic": topic,
            "partition": partition,
            "offset": found[topic, partition].offset,
            "timestamp": found[topic, partition].timestamp,
            "error": found[topic, partition].error,
        }
        for topic, partition in sorted(wanted)
    ]
    show(options, _OFFSETS, rows)
    return 0


def offset_fetch(options: argparse.Namespace, env: Mapping[str, str]) -> int:
    with connected(options, env) as connection:
        from kctl.kafka.groups import describe_groups
        from kctl.kafka.offsets import committed

        topics = _required(connection, options.topic)
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


def _required(connection: Connection, names: list[str] | None) -> dict[str, Topic] | None:
    """Opens the connection; the topics that were named, which must exist; None when none was."""
    from kctl.kafka.layout import require, topics_of

    if not names:
        connection.open()
        return None
    topics = topics_of(connection.open(names))
    return {name: require(topics, name) for name in names}


def wanted_partitions(connection: Connection, words: list[str]) -> tuple[dict[str, Topic], list[Partition]]:
    """Opens the connection; the topics and partitions of `-t TOPIC[:0,2]`, which must exist."""
    from kctl.kafka.layout import require, topics_of

    chosen = [topic_and_partitions(word) for word in words]
    topics = topics_of(connection.open(sorted({name for name, _ in chosen})))
    wanted: set[Partition] = set()
    for name, numbers in chosen:
        all_of_it = require(topics, name)
        for number in numbers or ():
            require(topics, name, number)
        wanted |= {(name, number) for number in numbers or [each.partition for each in all_of_it.partitions]}
    return topics, sorted(wanted)
