"""`kctl kafka create-topic`"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kctl.cli.kafka.changes import audited, settings_of
from kctl.cli.kafka.cluster import connected
from kctl.cli.kafka.output import show
from kctl.cli.table import clean
from kctl.errors import UsageError

if TYPE_CHECKING:
    from kctl.kafka.admin import NewTopic
    from kctl.kafka.client.connection import ClusterConnection

__all__ = ["run"]

_NAME = re.compile("[A-Za-z0-9._-]{1,249}")
"""Matches a topic's name as the broker checks it (org.apache.kafka.common.internals.Topic)."""
_CREATED = ("topic", "partitions", "replicas", "topic_id")


def run(options: argparse.Namespace, env: Mapping[str, str]) -> int:
    if not _NAME.fullmatch(options.topic) or options.topic in (".", ".."):
        raise UsageError(
            f"`{clean(options.topic)}` is no name of a topic: use 1 to 249 letters, digits, dots, underscores and "
            "hyphens"
        )
    settings = settings_of(options.set, "--set")
    for name in ("partitions", "replicas"):
        if getattr(options, name) == 0:
            raise UsageError(f"--{name} takes 1 or more")
    with connected(options, env) as connection:
        connection.open([options.topic])
        if options.dry_run:
            made = _create(connection, options, settings)
        else:
            params = {"partitions": options.partitions, "replicas": options.replicas, "settings": settings}
            with audited(options, env, connection, "create-topic", topic=options.topic, **params) as running:
                made = _create(connection, options, settings)
                running.text = f"topic {made.topic} created, {made.partitions} partitions"
    show(options, _CREATED, [made._asdict()], executed=not options.dry_run)
    return 0


def _create(connection: ClusterConnection, options: argparse.Namespace, settings: Mapping[str, str]) -> NewTopic:
    from kctl.kafka.admin import create_topic as create

    return create(connection, options.topic, options.partitions, options.replicas, settings, is_dry_run=options.dry_run)
