"""`kctl kafka reset-offsets` and `offset-commit`: what a group without live members has committed is set."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from kctl.cli.kafka_changes import audited, check_choice, refusal, report
from kctl.cli.kafka_cluster import connected
from kctl.cli.kafka_offsets import wanted_partitions
from kctl.cli.kafka_output import show
from kctl.errors import UsageError
from kctl.kafka.target import Target, target

if TYPE_CHECKING:
    from kctl.audit import Operation
    from kctl.kafka.connection import Connection
    from kctl.kafka.reset import Change

__all__ = ["offset_commit", "reset_offsets"]

_CHANGES = (("topic", False), ("partition", True), ("old", True), ("new", True), ("difference", True))


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

        topics, wanted = wanted_partitions(connection, options.topic)
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
    report(options, running.text)
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
