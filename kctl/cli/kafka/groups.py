"""`kctl kafka groups` and `group`"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from kctl.cli.kafka.cluster import connected, fleet_group
from kctl.cli.kafka.output import complain, show, show_document, table
from kctl.cli.output import echo
from kctl.cli.table import cell, ranges
from kctl.errors import KctlError
from kctl.kafka.client.connection import ClusterConnection
from kctl.kafka.groups import Group, describe_groups, list_groups

_GROUPS = ("group", "type", "state", "protocol", "coordinator")
_HEAD = ("state", "type", "protocol", "assignor", "coordinator")
_MEMBERS = ("member_id", "client_id", "host", "instance_id", "topic", "partitions")


def groups(options: argparse.Namespace, env: Mapping[str, str]) -> None:
    with connected(options, env) as connection:
        connection.open()
        groups, problems = list_groups(connection)
    show(options, _GROUPS, [group._asdict() for group in groups], problems)


def group(options: argparse.Namespace, env: Mapping[str, str]) -> None:
    names = options.group or ([] if options.all else [fleet_group(options, env, "GROUP, --all")])
    with connected(options, env) as connection:
        connection.open()
        problems: list[KctlError] = []
        if options.all:
            listed, problems = list_groups(connection)
            names = [*names, *(group.group for group in listed)]
        described = describe_groups(connection, names)
        documents = [_document(connection, group, options.topic) for group in described]
    problems += [group.error for group in described if group.error is not None]
    if options.all and options.topic:
        documents = [document for document in documents if document["members"]]
    documents = [document for document in documents if document["state"] is not None or document["members"]]
    if options.output == "table":
        echo("\n\n".join(_lines(document) for document in documents))
    else:
        show_document(options, {"groups": documents})
    complain((), problems)


def _document(connection: ClusterConnection, group: Group, topic: str | None) -> dict[str, Any]:
    broker = None if group.coordinator is None else connection.brokers.get(group.coordinator)
    members = None
    if group.members is not None:
        members = [
            {
                **member._asdict(),
                "host": member.host.removeprefix("/"),
                "assigned": None
                if member.assigned is None
                else {name: list(numbers) for name, numbers in member.assigned.items() if topic in (None, name)},
            }
            for member in sorted(group.members, key=lambda each: each.member_id)
            if topic is None or topic in (member.assigned or {})
        ]
    return {
        "group": group.group,
        "state": group.state,
        "type": group.type,
        "protocol": group.protocol,
        "assignor": group.assignor,
        "coordinator": group.coordinator,
        "coordinator_address": broker and broker.address,
        "members": members,
    }


def _lines(document: dict[str, Any]) -> str:
    fields = {**document, "coordinator": f"{document['coordinator']} ({document['coordinator_address']})"}
    head = f"group {cell(document['group'])}  " + "  ".join(f"{key} {cell(fields[key])}" for key in _HEAD)
    members = document["members"]
    if members is None:
        return f"{head}\nits members are not known"
    if not members:
        return f"{head}\nno members"
    return "\n".join([head, *table(_MEMBERS, [row for member in members for row in _rows(member)])])


def _rows(member: dict[str, Any]) -> list[dict[str, Any]]:
    """One row per topic, or one for a member without partitions."""
    assigned = member["assigned"] or {None: []}
    return [
        {**member, "topic": topic, "partitions": ranges(assigned[topic]) or None}
        for topic in sorted(assigned, key=lambda name: name or "")
    ]
