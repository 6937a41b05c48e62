"""Requests of `kctl kafka wire`, none of which changes anything, and what each is for."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kctl.errors import KctlError, UsageError

if TYPE_CHECKING:
    from kctl.kafka.client.connection import ClusterConnection, Node

__all__ = ["READ_ONLY", "request_of"]


def request_of(connection: ClusterConnection, options: argparse.Namespace) -> tuple[Any, Node | None]:
    """Returns the request that `options` describe, and the broker that is to get it; None: any."""
    from kctl.kafka.protocol.wire import requests

    return _BUILDERS[options.request](connection, requests()[options.request], options)


def _api_versions(_connection: ClusterConnection, kind: Any, options: argparse.Namespace) -> tuple[Any, Node | None]:
    return kind(client_software_name="kctl", client_software_version="1"), options.broker


def _metadata(_connection: ClusterConnection, kind: Any, options: argparse.Namespace) -> tuple[Any, Node | None]:
    names = [kind.MetadataRequestTopic(name=name) for name in options.topic] if options.topic else None
    return kind(topics=names, allow_auto_topic_creation=False), options.broker


def _find_coordinator(
    _connection: ClusterConnection, kind: Any, options: argparse.Namespace
) -> tuple[Any, Node | None]:
    groups = _groups(options)
    if options.version is not None and options.version < 4:
        return kind(key=groups[0], key_type=0), options.broker
    return kind(coordinator_keys=groups, key_type=0, min_version=4), options.broker


def _list_offsets(connection: ClusterConnection, kind: Any, options: argparse.Namespace) -> tuple[Any, Node | None]:
    """Requests the ends of the partitions that one broker leads, by default the leader of the first."""
    from kctl.kafka.client.layout import require, topics_of

    topics = options.topic or []
    if not topics:
        raise UsageError("ListOffsets is about topics: -t TOPIC")
    known = topics_of(connection.metadata(topics))
    partitions = {name: require(known, name).partitions for name in topics}
    leader: Node | None = options.broker
    if leader is None:
        leader = next((p.leader for each in partitions.values() for p in each), None)
    made = [
        kind.ListOffsetsTopic(
            name=name,
            partitions=[
                kind.ListOffsetsTopic.ListOffsetsPartition(
                    partition_index=each.partition, current_leader_epoch=-1, timestamp=-1
                )
                for each in led
                if each.leader == leader
            ],
        )
        for name, led in partitions.items()
    ]
    return kind(replica_id=-1, isolation_level=0, topics=made), leader


def _offset_fetch(connection: ClusterConnection, kind: Any, options: argparse.Namespace) -> tuple[Any, Node | None]:
    groups = _groups(options)
    node = _coordinator(connection, options)
    if options.version is not None and options.version < 8:
        return kind(group_id=groups[0], topics=None), node
    wanted = [kind.OffsetFetchRequestGroup(group_id=group, topics=None) for group in groups]
    return kind(groups=wanted, min_version=8), node


def _describe_groups(connection: ClusterConnection, kind: Any, options: argparse.Namespace) -> tuple[Any, Node | None]:
    return kind(groups=_groups(options)), _coordinator(connection, options)


def _list_groups(_connection: ClusterConnection, kind: Any, options: argparse.Namespace) -> tuple[Any, Node | None]:
    return kind(states_filter=[], types_filter=[]), options.broker


_BUILDERS: dict[str, Callable[[Any, Any, argparse.Namespace], tuple[Any, Any]]] = {
    "ApiVersions": _api_versions,
    "Metadata": _metadata,
    "FindCoordinator": _find_coordinator,
    "ListOffsets": _list_offsets,
    "OffsetFetch": _offset_fetch,
    "DescribeGroups": _describe_groups,
    "ListGroups": _list_groups,
}
READ_ONLY = tuple(_BUILDERS)


def _groups(options: argparse.Namespace) -> list[str]:
    if not options.group:
        raise UsageError(f"{options.request} is about a group: -g GROUP")
    return list(options.group)


def _coordinator(connection: ClusterConnection, options: argparse.Namespace) -> Node:
    if options.broker is not None:
        return int(options.broker)
    found = connection.coordinators(options.group[:1])[options.group[0]]
    if isinstance(found, KctlError):
        raise found
    return found
