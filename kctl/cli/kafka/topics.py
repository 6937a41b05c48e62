"""`kctl kafka topics`, `topic`, `brokers`, `create-topic`, `delete-topic` and `alter-topic`: topics and brokers."""

import argparse
import re
from collections.abc import Mapping
from functools import partial
from typing import Any

from kctl.cli.kafka.changes import audited, change, check_choice, settings_of
from kctl.cli.kafka.cluster import connected, required_topic
from kctl.cli.kafka.output import complain, show, show_document, table
from kctl.cli.output import echo
from kctl.cli.table import cell, clean
from kctl.errors import KctlError, UsageError
from kctl.kafka import admin
from kctl.kafka.client.connection import ClusterConnection
from kctl.kafka.client.layout import (
    DEFAULT,
    BrokerLoad,
    Topic,
    broker_loads,
    quorum_leader,
    settings_of_topic,
    topics_of,
)
from kctl.kafka.client.reasons import name_of_code
from kctl.kafka.lag import lag_of
from kctl.kafka.offsets import EARLIEST, LATEST, log_offsets

_TOPICS = ("topic", "partitions", "replicas", "under_replicated", "no_leader", "internal")
_PARTITIONS = ("partition", "leader", "replicas", "isr", "offline", "under_replicated")
_SETTINGS = ("setting", "value", "set_by")
_BROKERS = ("node_id", "host", "port", "rack", "controller", "leaders", "replicas", "not_in_sync")
_NAME = re.compile("[A-Za-z0-9._-]{1,249}")
"""The broker's own check (org.apache.kafka.common.internals.Topic)."""


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
        document = {"topic": topic.name, "topic_id": topic.topic_id, "internal": topic.is_internal}
        show_document(options, {**document, "partitions": rows, "settings": settings})
    complain(rows, problems)


def brokers(options: argparse.Namespace, env: Mapping[str, str]) -> None:
    with connected(options, env) as connection:
        loads = broker_loads(topics_of(connection.open(None)).values())
        controller = quorum_leader(connection)
        known = dict(connection.brokers)
        cluster = connection.cluster_id
    rows = [
        {
            "node_id": node,
            "host": broker and broker.host,
            "port": broker and broker.port,
            "rack": broker and broker.rack,
            "controller": node == controller,
            **loads.get(node, BrokerLoad(0, 0, 0))._asdict(),
            "error": None if broker else "not in the cluster now",
        }
        for node in sorted(known.keys() | loads.keys())
        for broker in [known.get(node)]
    ]
    show(options, _BROKERS, rows, cluster_id=cluster, controller=controller)


def create_topic(options: argparse.Namespace, env: Mapping[str, str]) -> None:
    if not _NAME.fullmatch(options.topic) or options.topic in (".", ".."):
        raise UsageError(
            f"`{clean(options.topic)}` is not a valid topic name: use 1 to 249 letters, digits, dots, underscores "
            "and hyphens"
        )
    settings = settings_of(options.set, "--set")
    with connected(options, env) as connection:
        connection.open([options.topic])
        if options.dry_run:
            made = _create(connection, options, settings)
        else:
            params = {"partitions": options.partitions, "replicas": options.replicas, "settings": settings}
            with audited(options, env, connection, "create-topic", topic=options.topic, **params) as running:
                made = _create(connection, options, settings)
                running.text = f"topic {made.topic} created, {made.partitions} partitions"
    show(options, made._fields, [made._asdict()], executed=not options.dry_run)


def _create(connection: ClusterConnection, options: argparse.Namespace, settings: Mapping[str, str]) -> admin.NewTopic:
    numbers = options.partitions, options.replicas
    return admin.create_topic(connection, options.topic, *numbers, settings, is_dry_run=options.dry_run)


def delete_topic(options: argparse.Namespace, env: Mapping[str, str]) -> int:
    check_choice(options)
    name = options.topic
    with connected(options, env) as connection:
        topic = required_topic(connection, name)
        if topic.is_internal:
            raise UsageError(f"topic {name} is internal to Kafka, so kctl does not delete it")
        row = _deleted(connection, topic)
        shown = partial(show, options, ("topic", "partitions", "messages", "topic_id"), [row])
        question = f"Delete topic {name} and all its messages?"

        def make() -> str:
            admin.delete_topic(connection, name)
            return f"topic {name} deleted"

        return change(options, env, connection, "delete-topic", question, shown, make, **row)


def _deleted(connection: ClusterConnection, topic: Topic) -> dict[str, Any]:
    keys = [(topic.name, each.partition) for each in topic.partitions]
    starts, ends = (log_offsets(connection, {topic.name: topic}, keys, at) for at in (EARLIEST, LATEST))
    counts = [lag_of(starts[key].offset, ends[key].offset) for key in keys]
    known = [count for count in counts if count is not None]
    return {
        "topic": topic.name,
        "partitions": len(keys),
        "messages": sum(known) if len(known) == len(counts) else None,
        "topic_id": topic.topic_id,
    }


def alter_topic(options: argparse.Namespace, env: Mapping[str, str]) -> int:
    check_choice(options)
    name, total, settings = options.topic, options.partitions, _settings(options)
    if total is None and not settings:
        raise UsageError("name what to alter: --partitions N, --set KEY=VALUE or --unset KEY")
    with connected(options, env) as connection:
        topic = required_topic(connection, name)
        rows = _plan(connection, topic, total, settings)
        _alter(connection, name, total, settings, is_dry_run=True)  # brokers reject it before anything changes
        shown = partial(show, options, ("setting", "old", "new"), rows, topic=name)
        question = f"Alter topic {name}?" + (" Partitions cannot be removed again." if total is not None else "")

        def make() -> str:
            _alter(connection, name, total, settings, is_dry_run=False)
            return f"topic {name} altered"

        return change(options, env, connection, "alter-topic", question, shown, make, topic=name, changes=rows)


def _settings(options: argparse.Namespace) -> dict[str, str | None]:
    settings: dict[str, str | None] = dict(settings_of(options.set, "--set"))
    for key in options.unset or ():
        if key in settings:
            raise UsageError(f"--set and --unset of {key} contradict each other")
        settings[key] = None
    return settings


def _plan(
    connection: ClusterConnection, topic: Topic, total: int | None, settings: Mapping[str, str | None]
) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    if total is not None:
        count = len(topic.partitions)
        if total <= count:
            raise UsageError(
                f"topic {topic.name} has {count} partitions: their number can only grow, so {total} is not possible"
            )
        rows.append({"setting": "partitions", "old": count, "new": total})
    old = admin.values_of(connection, topic.name, list(settings)) if settings else {}
    return rows + [
        {"setting": key, "old": old[key], "new": "(default)" if value is None else value}
        for key, value in settings.items()
    ]


def _alter(
    connection: ClusterConnection, name: str, total: int | None, settings: Mapping[str, str | None], *, is_dry_run: bool
) -> None:
    if settings:
        admin.alter_settings(connection, name, settings, is_dry_run=is_dry_run)
    if total is not None:
        admin.add_partitions(connection, name, total, is_dry_run=is_dry_run)
