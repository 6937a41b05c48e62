"""`kctl kafka topics`, `topic` and `brokers`"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from kctl.cli.kafka.cluster import connected, required_topic
from kctl.cli.kafka.output import complain, show, show_document, table
from kctl.cli.output import echo
from kctl.cli.table import cell
from kctl.errors import KctlError
from kctl.kafka.client.layout import DEFAULT, BrokerLoad, broker_loads, quorum_leader, settings_of_topic, topics_of
from kctl.kafka.client.reasons import name_of_code

_TOPICS = ("topic", "partitions", "replicas", "under_replicated", "no_leader", "internal")
_PARTITIONS = ("partition", "leader", "replicas", "isr", "offline", "under_replicated")
_SETTINGS = ("setting", "value", "set_by")
_BROKERS = ("node_id", "host", "port", "rack", "controller", "leaders", "replicas", "not_in_sync")


def topics(options: argparse.Namespace, env: Mapping[str, str]) -> None:
    with connected(options, env) as connection:
        topics = topics_of(connection.open(None)).values()
    rows = [
        {
            "topic": topic.name,
            "partitions": len(topic.partitions),
            "replicas": max((len(each.replicas) for each in topic.partitions), default=None),
            "under_replicated": sum(each.is_under_replicated for each in topic.partitions),
            "no_leader": sum(each.leader is None for each in topic.partitions),
            "internal": topic.is_internal,
            "topic_id": topic.topic_id,
            "error": name_of_code(topic.error_code),
        }
        for topic in topics
    ]
    show(options, _TOPICS, rows)


def topic(options: argparse.Namespace, env: Mapping[str, str]) -> None:
    with connected(options, env) as connection:
        topic = required_topic(connection, options.topic)
        problems = []
        settings: list[dict[str, Any]] | None = None
        try:
            settings = [
                {"setting": each.name, "value": each.value, "set_by": each.source}
                for each in settings_of_topic(connection, topic.name)
                if each.source != DEFAULT
            ]
        except KctlError as problem:
            problems.append(problem)
    rows = [each._asdict() | {"under_replicated": each.is_under_replicated} for each in topic.partitions]
    if options.output == "table":
        kind = "  internal" if topic.is_internal else ""
        echo(f"topic {cell(topic.name)}  id {cell(topic.topic_id)}  partitions {len(rows)}{kind}\n")
        echo("\n".join(table(_PARTITIONS, rows)) + "\n")
        echo("\n".join(table(_SETTINGS, settings)) if settings else "all settings have their defaults")
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


def brokers(options: argparse.Namespace, env: Mapping[str, str]) -> None:
    with connected(options, env) as connection:
        loads = broker_loads(topics_of(connection.open(None)).values())
        controller = quorum_leader(connection)
        known = dict(connection.brokers)
        cluster = connection.cluster_id
    rows: list[dict[str, Any]] = []
    for node in sorted(known.keys() | loads.keys()):
        broker = known.get(node)
        rows.append(
            {
                "node_id": node,
                "host": broker and broker.host,
                "port": broker and broker.port,
                "rack": broker and broker.rack,
                "controller": node == controller,
                **loads.get(node, BrokerLoad(0, 0, 0))._asdict(),
                "error": None if broker else "not in the cluster now",
            }
        )
    show(options, _BROKERS, rows, cluster_id=cluster, controller=controller)
