"""`kctl kafka reset-offsets`: sets the committed offsets of a group without live members."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from kctl.cli.kafka.changes import change, check_choice
from kctl.cli.kafka.cluster import connected
from kctl.cli.kafka.offset_changes import audit_params, show_changes, summary
from kctl.cli.kafka.topic_arguments import wanted_partitions
from kctl.errors import UsageError
from kctl.kafka.target import target

__all__ = ["run"]


def run(options: argparse.Namespace, env: Mapping[str, str]) -> int:
    to = target(options.to)
    check_choice(options)
    if not options.topic:
        raise UsageError("give a topic: -t TOPIC; see `kctl kafka reset-offsets --help`")
    with connected(options, env) as connection:
        from kctl.kafka.reset import apply, plan

        topics, wanted = wanted_partitions(connection, options.topic)
        changes = plan(connection, options.group, topics, wanted, to)
        params = audit_params(options.group, changes)

        def make() -> str:
            nonlocal changes
            changes = apply(connection, options.group, changes)
            return summary(changes)

        def shown(*, executed: bool) -> None:
            show_changes(options, changes, executed=executed)

        question = f"Set these offsets of group {options.group}?"
        return change(options, env, connection, "reset-offsets", question, shown, make, **params)
