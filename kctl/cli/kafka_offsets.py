"""`kctl kafka lag`, `list-offsets`, `offset-fetch`, `offset-commit` and `reset-offsets`"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from kctl.cli.kafka_changes import audited, check_choice, refusal
from kctl.cli.kafka_cluster import connected, fleet_kafka
from kctl.cli.kafka_output import show
from kctl.errors import KctlError, UsageError
from kctl.kafka.target import Target, milliseconds, target, topic_and_partitions

if TYPE_CHECKING:
    from kctl.audit import Operation
    from kctl.kafka.connection import Connection
    from kctl.kafka.layout import Partition, Topic
    from kctl.kafka.reset import Change

__all__ = ["lag", "list_offsets", "offset_commit", "offset_fetch", "reset_offsets"]

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
_CHANGES = (("topic", False), ("partition", True), ("old", True), ("new", True), ("difference", True))


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

        topics, wanted = _wanted(connection, options.topic)
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


def offset_commit(options: argparse.Namespace, env: Mapping[str, str]) -> int:
    with connected(options, env) as connection:
        from kctl.kafka.layout import require, topics_of
        from kctl.kafka.reset import apply, plan

        topics = topics_of(connection.open([options.topic]))
        require(topics, options.topic, options.partition)
        key = (options.topic, options.partition)
        [planned] = plan(connection, options.group, topics, [key], Target("offset", options.offset))
        if planned.new is not None and planned.new != options.offset:
            raise UsageError(
                f"offset {options.offset} is outside the log of {key[0]}-{key[1]}: the nearest in it is {planned.new}"
            )
        with _audited(options, env, "offset-commit", connection, [planned]) as running:
            changes = apply(connection, options.group, [planned])
            running.text = _summary(changes)
    _show_changes(options, changes)
    return 0


def reset_offsets(options: argparse.Namespace, env: Mapping[str, str]) -> int:
    to = target(options.to)
    check_choice(options)
    if not options.topic:
        raise UsageError("say of which topic: -t TOPIC; see `kctl kafka reset-offsets --help`")
    with connected(options, env) as connection:
        from kctl.kafka.reset import apply, plan

        topics, wanted = _wanted(connection, options.topic)
        changes = plan(connection, options.group, topics, wanted, to)
        planned = changes
        declined = refusal(
            options,
            lambda: _show_changes(options, planned, executed=False),
            f"Set these offsets of group {options.group}?",
        )
        if declined is not None:
            return declined
        connection.renew()
        with _audited(options, env, "reset-offsets", connection, changes) as running:
            changes = apply(connection, options.group, changes)
            running.text = _summary(changes)
    _show_changes(options, changes, executed=True)
    return 0


def _audited(
    options: argparse.Namespace, env: Mapping[str, str], verb: str, connection: Connection, changes: list[Change]
) -> AbstractContextManager[Operation]:
    """The line holds the old offsets: with them a mistake can be undone."""
    offsets = [[change.topic, change.partition, change.old, change.new] for change in changes]
    return audited(options, env, verb, cluster=connection.access.named, group=options.group, offsets=offsets)


def _summary(changes: list[Change]) -> str:
    failed = sum(change.error is not None for change in changes)
    count = len(changes) - failed
    return f"{count} offset{'' if count == 1 else 's'} set" + (f", {failed} not" if failed else "")


def _show_changes(options: argparse.Namespace, changes: list[Change], **more: Any) -> None:
    show(options, _CHANGES, _rows(changes), group=options.group, **more)


def _rows(changes: list[Change]) -> list[dict[str, Any]]:
    return [
        {
            "topic": change.topic,
            "partition": change.partition,
            "old": change.old,
            "new": change.new,
            "difference": change.difference,
            "error": change.error,
        }
        for change in changes
    ]


def _required(connection: Connection, names: list[str] | None) -> dict[str, Topic] | None:
    """Opens the connection; the topics that were named, which must exist; None when none was."""
    from kctl.kafka.layout import require, topics_of

    if not names:
        connection.open()
        return None
    topics = topics_of(connection.open(names))
    return {name: require(topics, name) for name in names}


def _wanted(connection: Connection, words: list[str]) -> tuple[dict[str, Topic], list[Partition]]:
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
