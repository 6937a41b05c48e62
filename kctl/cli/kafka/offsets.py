"""`kctl kafka lag`, `list-offsets` and `offset-fetch`: offsets and lag."""

import argparse
from collections.abc import Iterable, Mapping
from typing import Any

from kctl.cli.kafka.cluster import connected, fleet_group, required_topics, wanted_partitions
from kctl.cli.kafka.output import show
from kctl.errors import KctlError, UsageError
from kctl.kafka.client.connection import ClusterConnection
from kctl.kafka.client.layout import Partition
from kctl.kafka.client.reasons import or_raise
from kctl.kafka.groups import describe_groups, list_groups
from kctl.kafka.lag import read_lag
from kctl.kafka.offsets import EARLIEST, LATEST, MAX_TIMESTAMP, committed, log_offsets
from kctl.kafka.target import milliseconds

_LAG = ("group", "topic", "partition", "current_offset", "log_end_offset", "lag", "consumer_id", "host", "client_id")
_COMMITTED = ("group", "topic", "partition", "committed_offset", "leader_epoch", "metadata")


def lag(options: argparse.Namespace, env: Mapping[str, str]) -> None:
    groups = options.group or ([] if options.all else [fleet_group(options, env, "-g GROUP, --all")])
    with connected(options, env) as connection:
        topics = required_topics(connection, options.topic or []) or None
        problems: list[KctlError] = []
        if options.all:
            listed, problems = list_groups(connection)
            groups = [*groups, *(group.group for group in listed)]
        found, more = read_lag(connection, groups, topics, is_read_committed=options.read_committed)
    if options.all and options.topic:
        found = [row for row in found if row.current_offset is not None or row.consumer_id is not None]
    show(options, _LAG, [row._asdict() for row in found], [*problems, *more])


def list_offsets(options: argparse.Namespace, env: Mapping[str, str]) -> None:
    if not options.topic:
        raise UsageError("give a topic: -t TOPIC; see `kctl kafka list-offsets --help`")
    names = {"earliest": EARLIEST, "latest": LATEST, "max-timestamp": MAX_TIMESTAMP}
    at = names[options.time] if options.time in names else milliseconds(options.time)
    with connected(options, env) as connection:
        topics, partitions = wanted_partitions(connection, options.topic)
        offsets = log_offsets(connection, topics, partitions, at, is_read_committed=options.read_committed)
    rows = [
        {"topic": topic, "partition": partition, **offsets[topic, partition]._asdict()}
        for topic, partition in sorted(partitions)
    ]
    show(options, ("topic", "partition", "offset", "timestamp"), rows)


def offset_fetch(options: argparse.Namespace, env: Mapping[str, str]) -> None:
    with connected(options, env) as connection:
        topics = required_topics(connection, options.topic or [])
        only = [(t.name, p.partition) for t in topics.values() for p in t.partitions]
        rows = committed_rows(connection, options.group, only or None)
        if not any(row["committed_offset"] is not None for row in rows):
            [described] = describe_groups(connection, [options.group])
            if described.error is not None:
                raise described.error
    show(options, _COMMITTED, rows)


def committed_rows(
    connection: ClusterConnection, group: str, wanted: Iterable[Partition] | None = None
) -> list[dict[str, Any]]:
    """Returns a row for each partition in `wanted`, by default for all with a committed offset. Raises KctlError."""
    found = or_raise(committed(connection, {group: wanted})[group])
    return [
        {
            "group": group,
            "topic": topic,
            "partition": partition,
            "committed_offset": known.offset,
            "leader_epoch": known.leader_epoch,
            "metadata": known.metadata,
            "error": known.error,
        }
        for (topic, partition), known in sorted(found.items())
    ]
