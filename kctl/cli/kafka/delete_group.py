"""`kctl kafka delete-group`"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from functools import partial

from kctl.cli.kafka.changes import change, check_choice
from kctl.cli.kafka.cluster import connected
from kctl.cli.kafka.committed import committed_rows
from kctl.cli.kafka.output import show

__all__ = ["run"]

_COMMITTED = ("group", "topic", "partition", "committed_offset")


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
        rows = committed_rows(connection, name)
        shown = partial(show, options, _COMMITTED, rows, group=name, state=group.state)
        question = f"Delete group {name} and what it has committed?"
        offsets = [[row["topic"], row["partition"], row["committed_offset"]] for row in rows]

        def make() -> str:
            delete(connection, name)
            return f"group {name} deleted"

        return change(options, env, connection, "delete-group", question, shown, make, group=name, offsets=offsets)
