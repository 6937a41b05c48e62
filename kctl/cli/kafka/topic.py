"""`kctl kafka topic`"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from kctl.cli.kafka.cluster import connected
from kctl.cli.kafka.output import complain, show_document, table, write
from kctl.cli.table import cell

__all__ = ["run"]

_PARTITIONS = ("partition", "leader", "replicas", "isr", "offline", "under_replicated")
_SETTINGS = ("setting", "value", "set_by")


def run(options: argparse.Namespace, env: Mapping[str, str]) -> int:
    with connected(options, env) as connection:
        from kctl.errors import KctlError
        from kctl.kafka.client.layout import require, settings_of_topic, topics_of

        topic = require(topics_of(connection.open([options.topic])), options.topic)
        problems = []
        settings: list[dict[str, Any]] | None = None
        try:
            settings = [
                {"setting": each.name, "value": each.value, "set_by": each.source}
                for each in settings_of_topic(connection, topic.name)
            ]
        except KctlError as problem:
            problems.append(problem)
    rows = [each._asdict() | {"under_replicated": each.is_under_replicated} for each in topic.partitions]
    if options.output == "table":
        kind = "  internal" if topic.is_internal else ""
        write(f"topic {cell(topic.name)}  id {cell(topic.topic_id)}  partitions {len(rows)}{kind}\n")
        write("\n".join(table(_PARTITIONS, rows)) + "\n")
        write("\n".join(table(_SETTINGS, settings)) if settings else "nothing is configured otherwise than by default")
    else:
        show_document(
            options,
            {
                "topic": topic.name,
                "topic_id": topic.topic_id,
                "internal": topic.is_internal,
                "partitions": rows,
                "settings": settings,
            },
        )
    complain(rows, problems)
    return 0
