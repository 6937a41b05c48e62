"""`kctl kafka offset-commit`"""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from kctl.cli.kafka.changes import audited
from kctl.cli.kafka.cluster import connected
from kctl.cli.kafka.offset_changes import audit_params, show_changes, summary
from kctl.errors import UsageError
from kctl.kafka.target import Target

__all__ = ["run"]


def run(options: argparse.Namespace, env: Mapping[str, str]) -> int:
    with connected(options, env) as connection:
        from kctl.kafka.client.layout import require, topics_of
        from kctl.kafka.reset import apply, plan

        topics = topics_of(connection.open([options.topic]))
        require(topics, options.topic, options.partition)
        key = (options.topic, options.partition)
        [planned] = plan(connection, options.group, topics, [key], Target("offset", options.offset))
        if planned.new is not None and planned.new != options.offset:
            raise UsageError(
                f"offset {options.offset} is outside the log of {key[0]}-{key[1]}: the nearest in it is {planned.new}"
            )
        params = audit_params(options.group, [planned])
        with audited(options, env, connection, "offset-commit", **params) as running:
            changes = apply(connection, options.group, [planned])
            running.text = summary(changes)
    show_changes(options, changes)
    return 0
