"""`kctl kafka groups`"""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from kctl.cli.kafka.cluster import connected
from kctl.cli.kafka.output import show

__all__ = ["run"]

_GROUPS = (("group", False), ("type", False), ("state", False), ("protocol", False), ("coordinator", True))


def run(options: argparse.Namespace, env: Mapping[str, str]) -> int:
    with connected(options, env) as connection:
        from kctl.kafka.groups import list_groups

        connection.open()
        groups, problems = list_groups(connection)
    rows = [
        {
            "group": group.group,
            "type": group.type,
            "state": group.state,
            "protocol": group.protocol_type,
            "coordinator": group.coordinator,
        }
        for group in groups
    ]
    show(options, _GROUPS, rows, problems)
    return 0
