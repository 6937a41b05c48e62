"""Start offsets of share groups (KIP-932), which commit nothing: all messages below the start are processed.

Messages above the start may be processed too, so the broker reports the lag (Kafka 4.2, KIP-1226).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kctl.errors import KctlError
from kctl.kafka.client.connection import ClusterConnection
from kctl.kafka.client.layout import Partition
from kctl.kafka.client.reasons import code_failure, name_of_code
from kctl.kafka.groups import Group
from kctl.kafka.offsets import Committed


def share_starts(connection: ClusterConnection, group: Group) -> dict[Partition, Committed] | KctlError:
    """None if the group has not begun the partition."""
    if group.coordinator is None:
        return group.error or KctlError(f"group {group.group} has no coordinator")
    return share_starts_on(connection, {group.coordinator: [group.group]})[group.group]


def share_starts_on(
    connection: ClusterConnection, groups: Mapping[int, Sequence[str]]
) -> dict[str, dict[Partition, Committed] | KctlError]:
    from kctl.kafka.protocol.messages import DescribeShareGroupOffsetsRequest

    wanted = DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup
    requests = [
        (node, DescribeShareGroupOffsetsRequest(groups=[wanted(group_id=name, topics=None) for name in names]))
        for node, names in groups.items()
    ]
    found: dict[str, dict[Partition, Committed] | KctlError] = {}
    for names, answer in zip(groups.values(), connection.ask_each(requests), strict=True):
        if isinstance(answer, KctlError):
            found |= dict.fromkeys(names, answer)
            continue
        for each in answer.groups:
            failed = each.error_code and code_failure(each.error_code, f"group {each.group_id}", each.error_message)
            found[each.group_id] = failed or _starts(each)
    return found


def _starts(described: Any) -> dict[Partition, Committed]:
    return {
        (topic.topic_name, each.partition_index): Committed(
            each.start_offset if each.start_offset >= 0 else None,
            error=name_of_code(each.error_code),
            lag=each.lag if each.lag is not None and each.lag >= 0 else None,
        )
        for topic in described.topics
        for each in topic.partitions
    }
