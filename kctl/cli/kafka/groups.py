"""`kctl kafka groups`, `group`, `delete-group` and `reset-offsets`: consumer groups."""

import argparse
from collections.abc import Mapping
from functools import partial
from typing import Any

from kctl.cli.kafka.changes import change, check_choice
from kctl.cli.kafka.cluster import connected, fleet_group, wanted_partitions
from kctl.cli.kafka.offsets import committed_rows
from kctl.cli.kafka.output import complain, show, show_document, table
from kctl.cli.output import echo
from kctl.cli.table import cell, ranges
from kctl.errors import KctlError, UsageError
from kctl.kafka import admin
from kctl.kafka.client.connection import ClusterConnection
from kctl.kafka.groups import Group, describe_groups, list_groups
from kctl.kafka.reset import OffsetChange, apply, plan, refuse_members
from kctl.kafka.target import target

_GROUPS = ("group", "type", "state", "protocol", "coordinator")
_HEAD = ("state", "type", "protocol", "assignor", "coordinator")
_MEMBERS = ("member_id", "client_id", "host", "instance_id", "topic", "partitions")
_COMMITTED = ("group", "topic", "partition", "committed_offset")
_CHANGES = ("topic", "partition", "old", "new", "difference")


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
        **{name: getattr(group, name) for name in ("group", *_HEAD)},
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
    assigned = member["assigned"] or {None: []}
    return [
        {**member, "topic": topic, "partitions": ranges(assigned[topic]) or None}
        for topic in sorted(assigned, key=lambda name: name or "")
    ]


def delete_group(options: argparse.Namespace, env: Mapping[str, str]) -> int:
    check_choice(options)
    name = options.group
    with connected(options, env) as connection:
        connection.open()
        [group] = describe_groups(connection, [name])
        if group.error is not None:
            raise group.error
        refuse_members(group)
        rows = committed_rows(connection, name)
        shown = partial(show, options, _COMMITTED, rows, group=name, state=group.state)
        question = f"Delete group {name} and its committed offsets?"
        offsets = [[row["topic"], row["partition"], row["committed_offset"]] for row in rows]

        def make() -> str:
            admin.delete_group(connection, name)
            return f"group {name} deleted"

        return change(options, env, connection, "delete-group", question, shown, make, group=name, offsets=offsets)


def reset_offsets(options: argparse.Namespace, env: Mapping[str, str]) -> int:
    to = target(options.to)
    check_choice(options)
    if not options.topic:
        raise UsageError("give a topic: -t TOPIC; see `kctl kafka reset-offsets --help`")
    with connected(options, env) as connection:
        topics, wanted = wanted_partitions(connection, options.topic)
        changes = plan(connection, options.group, topics, wanted, to)
        # The old offsets are included, so that a mistake can be undone.
        offsets = [[each.topic, each.partition, each.old, each.new] for each in changes]

        def make() -> str:
            nonlocal changes
            changes = apply(connection, options.group, changes)
            return _summary(changes)

        def shown(*, executed: bool) -> None:
            rows = [each._asdict() | {"difference": each.difference} for each in changes]
            show(options, _CHANGES, rows, group=options.group, executed=executed)

        params = {"group": options.group, "offsets": offsets}
        question = f"Set these offsets of group {options.group}?"
        return change(options, env, connection, "reset-offsets", question, shown, make, **params)


def _summary(changes: list[OffsetChange]) -> str:
    failed = sum(change.error is not None for change in changes)
    count = len(changes) - failed
    return f"{count} offset{'' if count == 1 else 's'} set" + (f", {failed} not" if failed else "")
