"""Rows of what a group has committed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from kctl.errors import KctlError

if TYPE_CHECKING:
    from kctl.kafka.client.connection import ClusterConnection
    from kctl.kafka.client.layout import Partition

__all__ = ["committed_rows"]


def committed_rows(
    connection: ClusterConnection, group: str, wanted: Iterable[Partition] | None = None
) -> list[dict[str, Any]]:
    """Returns a row for each partition that is wanted, or that something is committed for.

    Raises:
        KctlError: the coordinator does not answer it.
    """
    from kctl.kafka.offsets import committed

    found = committed(connection, {group: None if wanted is None else list(wanted)})[group]
    if isinstance(found, KctlError):
        raise found
    return [
        {
            "group": group,
            "topic": topic,
            "partition": partition,
            "committed_offset": known.offset,
            "leader_epoch": known.leader_epoch,
            "metadata": known.metadata,
            "error": known.error,
        }
        for (topic, partition), known in sorted(found.items())
    ]
