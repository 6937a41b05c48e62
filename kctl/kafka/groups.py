"""Groups of every kind: listed, and described with their members and what each of them holds.

A broker answers DescribeGroups for classic groups only; one of the new protocol (KIP-848) or a share group is "not
found" there, or dead on older brokers, and is asked for by its own request. So the answer also tells the kind.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from kafka.protocol.admin import DescribeGroupsRequest, ListGroupsRequest

from kctl.errors import BrokerUnreachable, GroupMissing, KctlError
from kctl.kafka.connection import Connection
from kctl.kafka.reasons import code_failure

__all__ = ["Group", "ListedGroup", "Member", "describe_groups", "list_groups"]

_NOT_FOUND = 69
_RETRY = {14, 15, 16}
"""COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR: ask again."""


class Member(NamedTuple):
    """A member; `assigned` maps topics to partitions, None where the group's protocol keeps that to itself."""

    member_id: str
    client_id: str
    host: str
    instance_id: str | None
    assigned: dict[str, tuple[int, ...]] | None


class ListedGroup(NamedTuple):
    """A group as ListGroups tells it; older brokers know neither state nor type."""

    group: str
    state: str | None
    type: str | None
    protocol_type: str | None
    coordinator: int


class Group(NamedTuple):
    """A described group; with `error` set nothing else is known but, perhaps, the coordinator.

    `type` is `classic`, `consumer`, `share` or `streams`; members None: not told.
    """

    group: str
    coordinator: int | None
    state: str | None = None
    type: str | None = None
    protocol: str | None = None
    assignor: str | None = None
    members: tuple[Member, ...] | None = ()
    error: KctlError | None = None


def list_groups(connection: Connection) -> tuple[list[ListedGroup], list[KctlError]]:
    """All groups of all brokers by name, and the brokers that did not answer."""
    nodes = sorted(connection.brokers)
    found: dict[str, ListedGroup] = {}
    problems: list[KctlError] = []
    for node, answer in zip(nodes, _list(connection, nodes), strict=True):
        if isinstance(answer, KctlError):
            problems.append(answer)
            continue
        for each in answer:
            found[each.group_id] = ListedGroup(
                each.group_id,
                each.group_state or None,
                (each.group_type or "").lower() or None,
                each.protocol_type or None,
                node,
            )
    return sorted(found.values(), key=lambda group: group.group), problems


def describe_groups(connection: Connection, names: Iterable[str]) -> list[Group]:
    """Each group in the order of the names; what cannot be told about one is in its `error`, and spoils no other."""
    order = list(dict.fromkeys(names))
    described: dict[str, Group] = {}
    open_names = order
    while open_names:
        coordinators = connection.coordinators(open_names)
        again = []
        for group in _described(connection, coordinators):
            if isinstance(group, str):
                again.append(group)
            else:
                described[group.group] = group
        open_names = again if connection.may_wait else []
        if open_names:
            connection.pause()
    return [described[name] for name in order if name in described]


def _described(connection: Connection, coordinators: dict[str, int | KctlError]) -> list[Group | str]:
    """Described groups; a name instead means: ask again."""
    done: list[Group | str] = []
    unknown: dict[str, int] = {}
    for name, node in coordinators.items():
        if isinstance(node, KctlError):
            done.append(Group(name, None, members=None, error=node))
        else:
            unknown[name] = node
    for kind in _KINDS:
        if unknown:
            unknown = _ask_as(connection, unknown, kind, done)
    return done + _listed_only(connection, unknown)


def _ask_as(connection: Connection, groups: dict[str, int], kind: _Kind, done: list[Group | str]) -> dict[str, int]:
    """Describe these groups as of one kind; returns those that are not of it."""
    by_node: dict[int, list[str]] = defaultdict(list)
    for name, node in groups.items():
        by_node[node].append(name)
    answers = connection.ask_each([(node, kind.request(names)) for node, names in by_node.items()])
    left: dict[str, int] = {}
    for (node, names), answer in zip(by_node.items(), answers, strict=True):
        if isinstance(answer, KctlError):
            if isinstance(answer, BrokerUnreachable) and connection.is_patient:
                done += names  # there will be another coordinator as soon as the cluster has noticed
            elif kind.is_optional and answer.code == "broker_refused":
                left |= dict.fromkeys(names, node)  # the broker does not know this kind
            else:
                done += [Group(name, node, members=None, error=answer) for name in names]
            continue
        for each in answer.groups:
            if each.error_code == _NOT_FOUND or (each.group_state == "Dead" and not each.members):
                left[each.group_id] = node
            elif each.error_code in _RETRY:
                done.append(each.group_id)
            elif each.error_code:
                problem = code_failure(each.error_code, f"group {each.group_id}", each.error_message)
                done.append(Group(each.group_id, node, members=None, error=problem))
            else:
                done.append(kind.read(each, node))
    return left


def _listed_only(connection: Connection, groups: dict[str, int]) -> list[Group | str]:
    """What remains is a group of a kind that we cannot describe, such as `streams`, or none at all."""
    if not groups:
        return []
    nodes = sorted(set(groups.values()))
    listed: dict[str, Any] = {}
    for answer in _list(connection, nodes):
        if not isinstance(answer, KctlError):
            listed |= {each.group_id: each for each in answer}
    done: list[Group | str] = []
    for name, node in groups.items():
        if name in listed:
            each = listed[name]
            kind = (each.group_type or "").lower() or None
            done.append(Group(name, node, each.group_state or None, kind, each.protocol_type or None, members=None))
        else:
            missing = GroupMissing(f"there is no group {name} (GROUP_ID_NOT_FOUND); `kctl kafka groups` lists them")
            done.append(Group(name, node, members=None, error=missing))
    return done


def _list(connection: Connection, nodes: list[int]) -> list[Any]:
    """The groups of each broker, or a KctlError."""
    answers = connection.ask_each([(node, ListGroupsRequest(states_filter=[], types_filter=[])) for node in nodes])
    return [
        answer
        if isinstance(answer, KctlError)
        else code_failure(answer.error_code, "the list of groups")
        if answer.error_code
        else answer.groups
        for answer in answers
    ]


class _Kind(NamedTuple):
    request: Callable[[list[str]], Any]
    read: Callable[[Any, int], Group]
    is_optional: bool
    """Whether a broker may be too old to know it."""


def _classic(each: Any, node: int) -> Group:
    members = tuple(
        Member(m.member_id, m.client_id, m.client_host, m.group_instance_id, _classic_assignment(each.protocol_type, m))
        for m in each.members
    )
    return Group(
        each.group_id,
        node,
        each.group_state,
        "classic",
        each.protocol_type or None,
        each.protocol_data or None,
        members,
    )


def _classic_assignment(protocol_type: str, member: Any) -> dict[str, tuple[int, ...]] | None:
    """Only consumers share out partitions; what Connect or a schema registry assigns is their own affair."""
    if protocol_type != "consumer":
        return None
    if not member.member_assignment:
        return {}
    from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment

    try:
        assignment = ConsumerProtocolAssignment.decode(bytes(member.member_assignment))
    except Exception:  # bytes of another client, which may hold anything
        return None
    return {each.topic: tuple(sorted(each.partitions)) for each in assignment.assigned_partitions}


def _consumer_request(names: list[str]) -> Any:
    from kctl.kafka.messages import ConsumerGroupDescribeRequest

    return ConsumerGroupDescribeRequest(group_ids=names, include_authorized_operations=False)


def _share_request(names: list[str]) -> Any:
    from kctl.kafka.messages import ShareGroupDescribeRequest

    return ShareGroupDescribeRequest(group_ids=names, include_authorized_operations=False)


def _modern(kind: str) -> Callable[[Any, int], Group]:
    def read(each: Any, node: int) -> Group:
        members = tuple(
            Member(
                m.member_id,
                m.client_id,
                m.client_host,
                getattr(m, "instance_id", None) if kind == "consumer" else None,
                {t.topic_name: tuple(sorted(t.partitions)) for t in m.assignment.topic_partitions},
            )
            for m in each.members
        )
        return Group(each.group_id, node, each.group_state, kind, kind, each.assignor_name or None, members)

    return read


_KINDS = (
    _Kind(lambda names: DescribeGroupsRequest(groups=names, include_authorized_operations=False), _classic, False),
    _Kind(_consumer_request, _modern("consumer"), True),
    _Kind(_share_request, _modern("share"), True),
)
