"""Where share groups (KIP-932) stand: they commit nothing, but a partition has a start, below which all is done.

Above the start some may be done as well, so the lag is reported by the broker (Kafka 4.2, KIP-1226).
"""

from __future__ import annotations

from kctl.errors import KctlError
from kctl.kafka.connection import Connection
from kctl.kafka.groups import Group
from kctl.kafka.layout import Partition
from kctl.kafka.offsets import Committed
from kctl.kafka.reasons import code_failure, name_of_code

__all__ = ["share_starts"]


def share_starts(connection: Connection, group: Group) -> dict[Partition, Committed] | KctlError:
    """The start offset of each partition that the group has begun; a partition not begun has None."""
    from kctl.kafka.messages import DescribeShareGroupOffsetsRequest

    if group.coordinator is None:
        return group.error or KctlError(f"group {group.group} has no coordinator")
    wanted = DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup(group_id=group.group, topics=None)
    [answer] = connection.ask_each([(group.coordinator, DescribeShareGroupOffsetsRequest(groups=[wanted]))])
    if isinstance(answer, KctlError):
        return answer
    [described] = answer.groups
    if described.error_code:
        return code_failure(described.error_code, f"group {group.group}", described.error_message)
    return {
        (topic.topic_name, each.partition_index): Committed(
            each.start_offset if each.start_offset >= 0 else None,
            error=name_of_code(each.error_code),
            lag=each.lag if each.lag is not None and each.lag >= 0 else None,
        )
        for topic in described.topics
        for each in topic.partitions
    }
