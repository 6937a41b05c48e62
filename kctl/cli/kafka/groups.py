"""`kctl kafka groups`"""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from kctl.cli.kafka.cluster import connected
from kctl.cli.kafka.output import show

__all__ = ["run"]

_GROUPS = ("group", "type", "state", "protocol", "coordinator")


def run(options: argparse.Namespace, env: Mapping[str, str]) -> int:
    with connected(options, env) as connection:
        from kctl.kafka.groups import list_groups

        connection.open()
        groups, problems = list_groups(connection)
    show(options, _GROUPS, [group._asdict() for group in groups], problems)
    return 0
