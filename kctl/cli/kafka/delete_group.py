"""`kctl kafka delete-group`"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kctl.cli.kafka.changes import audited, check_choice, refusal, report
from kctl.cli.kafka.cluster import connected
from kctl.cli.kafka.output import show
from kctl.errors import KctlError

if TYPE_CHECKING:
    from kctl.kafka.client.connection import ClusterConnection

__all__ = ["run"]

_COMMITTED = (("group", False), ("topic", False), ("partition", True), ("committed_offset", True))


def run(options: argparse.Namespace, env: Mapping[str, str]) -> int:
    check_choice(options)
    name = options.group
    with connected(options, env) as connection:
        from kctl.kafka.admin import delete_group as delete
        from kctl.kafka.groups import describe_groups
        from kctl.kafka.reset import refuse_members

        connection.open()
        [group] = describe_groups(connection, [name])
        if group.error is not None:
            raise group.error
        refuse_members(group)
        rows = _committed(connection, name)
        more = {"group": name, "state": group.state}
        declined = refusal(
            options,
            lambda: show(options, _COMMITTED, rows, **more, executed=False),
            f"Delete group {name} and what it has committed?",
        )
        if declined is not None:
            return declined
        connection.deadline.renew()
        offsets = [[row["topic"], row["partition"], row["committed_offset"]] for row in rows]
        with audited(
            options, env, "delete-group", cluster=connection.access.named, group=name, offsets=offsets
        ) as running:
            delete(connection, name)
            running.text = f"group {name} deleted"
    report(options, running.text)
    show(options, _COMMITTED, rows, **more, executed=True)
    return 0


def _committed(connection: ClusterConnection, name: str) -> list[dict[str, Any]]:
    """Returns the committed offsets that would be lost; they can be committed again from these rows.

    Raises:
        KctlError: the coordinator does not answer it.
    """
    from kctl.kafka.offsets import committed

    found = committed(connection, {name: None})[name]
    if isinstance(found, KctlError):
        raise found
    return [
        {
            "group": name,
            "topic": topic,
            "partition": partition,
            "committed_offset": known.offset,
            "error": known.error,
        }
        for (topic, partition), known in sorted(found.items())
    ]
