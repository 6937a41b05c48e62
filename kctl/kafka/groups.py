"""Lists groups of every type, and describes their members and partitions.

For a share group or a group of the new protocol (KIP-848), DescribeGroups returns "not found". Older brokers return the
state `Dead`. So kctl tries each type's request. The request that succeeds reveals the type.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

from kafka.protocol.admin import DescribeGroupsRequest, ListGroupsRequest

from kctl.errors import BrokerUnreachable, GroupMissing, KctlError, WrongProtocol
from kctl.kafka.client.connection import ClusterConnection
from kctl.kafka.client.reasons import COORDINATOR_ERRORS, code_failure
from kctl.kafka.protocol.group_bytes import DESCRIBE_VERSIONS, CountedGroup, CountedResponses
from kctl.kafka.protocol.raw import UNREADABLE, KeptRequests, RawResponse

_NOT_FOUND = 69


class Member(NamedTuple):
    """A member of a group. `assigned` maps topics to partitions, or is None if the protocol does not report it."""

    member_id: str
    client_id: str
    host: str
    instance_id: str | None
    assigned: dict[str, tuple[int, ...]] | None


class ListedGroup(NamedTuple):
    """A group from ListGroups. Older brokers do not report its state and type."""

    group: str
    type: str | None
    state: str | None
    protocol: str | None
    coordinator: int


class Group(NamedTuple):
    """A group as its coordinator describes it. If `error` is set, at most the coordinator is known. `type` is
    `classic`, `consumer`, `share` or `streams`. If the broker does not report members, `members` is None."""

    group: str
    coordinator: int | None
    state: str | None = None
    type: str | None = None
    protocol: str | None = None
    assignor: str | None = None
    members: tuple[Member, ...] | None = ()
    error: KctlError | None = None


def list_groups(connection: ClusterConnection) -> tuple[list[ListedGroup], list[KctlError]]:
    """Returns all groups, sorted by name, and the errors of brokers that did not list their groups."""
    answers = list_each(connection, sorted(connection.brokers))
    problems = [answer for answer in answers if isinstance(answer, KctlError)]
    found = {each.group: each for answer in answers if not isinstance(answer, KctlError) for each in answer}
    return sorted(found.values(), key=lambda group: group.group), problems


def list_each(connection: ClusterConnection, nodes: list[int]) -> list[list[ListedGroup] | KctlError]:
    answers = connection.ask_each([(node, ListGroupsRequest(states_filter=[], types_filter=[])) for node in nodes])
    return [
        answer
        if isinstance(answer, KctlError)
        else code_failure(answer.error_code, "the list of groups")
        if answer.error_code
        else [_listed(each, node) for each in answer.groups]
        for node, answer in zip(nodes, answers, strict=True)
    ]


def _listed(each: Any, node: int) -> ListedGroup:
    kind = (each.group_type or "").lower() or None
    return ListedGroup(each.group_id, kind, each.group_state or None, each.protocol_type or None, node)


class MemberCounts:
    def __init__(self) -> None:
        self._requests = KeptRequests()
        self._responses: dict[int, CountedResponses] = defaultdict(CountedResponses)

    def read(
        self, connection: ClusterConnection, groups: Mapping[tuple[int, str], list[str]]
    ) -> dict[str, int | KctlError]:
        """Returns each group's number of members, or its error. `groups` maps (coordinator, type) to names."""
        known = {key: names for key, names in groups.items() if key[1] in _KINDS}
        requests = [
            (node, self._requests.of(node, names, _count_request) if kind == "classic" else _KINDS[kind].request(names))
            for (node, kind), names in known.items()
        ]
        counts: dict[str, int | KctlError] = {}
        for ((node, _), names), answer in zip(known.items(), connection.ask_each(requests), strict=True):
            if isinstance(answer, KctlError):
                counts |= dict.fromkeys(names, answer)
                continue
            try:
                for each in self._counted(node, answer):
                    failed = each.error_code and code_failure(
                        each.error_code, f"group {each.group}", each.error_message
                    )
                    counts[each.group] = failed or each.members
            except UNREADABLE as error:
                counts |= dict.fromkeys(names, WrongProtocol(f"a response to DescribeGroups cannot be read: {error}"))
        return counts

    def _counted(self, node: int, answer: Any) -> Iterable[CountedGroup]:
        if isinstance(answer, RawResponse):
            return self._responses[node].read(answer.body, answer.version)
        return (
            CountedGroup(each.group_id, each.error_code, each.error_message, len(each.members))
            for each in answer.groups
        )


def _count_request(names: list[str]) -> Any:
    # Classic groups may be thousands, so the answer is read as bytes.
    low, high = DESCRIBE_VERSIONS[0], DESCRIBE_VERSIONS[-1]
    return DescribeGroupsRequest(groups=names, include_authorized_operations=False, min_version=low, max_version=high)


def describe_groups(connection: ClusterConnection, names: Iterable[str]) -> list[Group]:
    """Describes groups, in the order of `names`. If this fails for a group, its `error` has the reason. If a
    coordinator is loading or gone, asks again while the deadline permits."""
    order = list(dict.fromkeys(names))
    described: dict[str, Group] = {}
    open_names = order
    while open_names:
        answered = _Answered({}, [])
        _describe(connection, connection.coordinators(open_names), answered)
        described |= answered.groups
        open_names = answered.again if connection.deadline.may_wait else []
        if open_names:
            connection.pause()
    return [described[name] for name in order]


class _Answered(NamedTuple):
    groups: dict[str, Group]
    again: list[str]

    def failed(self, name: str, node: int | None, error: KctlError, *, is_passing: bool = False) -> None:
        self.groups[name] = Group(name, node, members=None, error=error)
        if is_passing:
            self.again.append(name)


def _describe(connection: ClusterConnection, coordinators: dict[str, int | KctlError], answered: _Answered) -> None:
    unknown: dict[str, int] = {}
    for name, node in coordinators.items():
        if isinstance(node, KctlError):
            answered.failed(name, None, node)
        else:
            unknown[name] = node
    for kind in _KINDS.values():
        if unknown:
            unknown = _ask_as(connection, unknown, kind, answered)
    _listed_only(connection, unknown, answered)


def _ask_as(connection: ClusterConnection, groups: dict[str, int], kind: _Kind, answered: _Answered) -> dict[str, int]:
    by_node: dict[int, list[str]] = defaultdict(list)
    for name, node in groups.items():
        by_node[node].append(name)
    answers = connection.ask_each([(node, kind.request(names)) for node, names in by_node.items()])
    left: dict[str, int] = {}
    for (node, names), answer in zip(by_node.items(), answers, strict=True):
        if isinstance(answer, KctlError):
            if kind.is_optional and answer.code == "broker_refused":
                left |= dict.fromkeys(names, node)  # the broker does not know this type
                continue
            # The cluster chooses another coordinator once it has noticed that this one is gone.
            is_passing = isinstance(answer, BrokerUnreachable) and connection.deadline.may_retry
            for name in names:
                answered.failed(name, node, answer, is_passing=is_passing)
            continue
        for each in answer.groups:
            if each.error_code == _NOT_FOUND or (each.group_state == "Dead" and not each.members):
                left[each.group_id] = node
            elif each.error_code:
                problem = code_failure(each.error_code, f"group {each.group_id}", each.error_message)
                answered.failed(each.group_id, node, problem, is_passing=each.error_code in COORDINATOR_ERRORS)
            else:
                answered.groups[each.group_id] = kind.read(each, node)
    return left


def _listed_only(connection: ClusterConnection, groups: dict[str, int], answered: _Answered) -> None:
    if not groups:
        return
    nodes = sorted(set(groups.values()))
    lists = {
        node: answer if isinstance(answer, KctlError) else {each.group: each for each in answer}
        for node, answer in zip(nodes, list_each(connection, nodes), strict=True)
    }
    for name, node in groups.items():
        listed = lists[node]
        if isinstance(listed, KctlError):
            answered.failed(name, node, listed)  # it is unknown whether the group exists
            continue
        each = listed.get(name)
        if each is None:
            answered.failed(name, node, _missing(name, node, is_alone=len(connection.brokers) == 1))
        else:
            answered.groups[name] = Group(name, node, each.state, each.type, each.protocol, members=None)


def _missing(name: str, node: int, *, is_alone: bool) -> GroupMissing:
    lists = "`kctl kafka groups` lists them"
    if is_alone:
        return GroupMissing(f"there is no group {name} (GROUP_ID_NOT_FOUND); {lists}")
    return GroupMissing(
        f"broker {node} knows no group {name} (GROUP_ID_NOT_FOUND): there is none, or this broker has become its "
        f"coordinator seconds ago and does not know it yet; ask again to be certain, {lists}"
    )


class _Kind(NamedTuple):
    request: Callable[[list[str]], Any]
    read: Callable[[Any, int], Group]
    is_optional: bool


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
    if protocol_type != "consumer":
        return None  # Connect and schema registries have formats of their own
    if not member.member_assignment:
        return {}
    from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment

    try:
        assignment = ConsumerProtocolAssignment.decode(bytes(member.member_assignment))
    except Exception:  # another client's bytes may contain anything
        return None
    return {each.topic: tuple(sorted(each.partitions)) for each in assignment.assigned_partitions}


def _modern_request(kind: str, names: list[str]) -> Any:
    from kctl.kafka.protocol import messages

    message = getattr(messages, f"{kind.title()}GroupDescribeRequest")
    return message(group_ids=names, include_authorized_operations=False)


def _modern(kind: str, each: Any, node: int) -> Group:
    members = tuple(
        Member(
            m.member_id,
            m.client_id,
            m.client_host,
            m.instance_id if kind == "consumer" else None,
            {t.topic_name: tuple(sorted(t.partitions)) for t in m.assignment.topic_partitions},
        )
        for m in each.members
    )
    return Group(each.group_id, node, each.group_state, kind, kind, each.assignor_name or None, members)


def _streams(each: Any, node: int) -> Group:
    # Members are assigned tasks, and only the topology has a task's partitions.
    members = tuple(Member(m.member_id, m.client_id, m.client_host, m.instance_id, None) for m in each.members)
    return Group(each.group_id, node, each.group_state, "streams", "streams", None, members)


_KINDS = {
    "classic": _Kind(
        lambda names: DescribeGroupsRequest(groups=names, include_authorized_operations=False),
        _classic,
        is_optional=False,
    ),
    "consumer": _Kind(partial(_modern_request, "consumer"), partial(_modern, "consumer"), is_optional=True),
    "share": _Kind(partial(_modern_request, "share"), partial(_modern, "share"), is_optional=True),
    "streams": _Kind(partial(_modern_request, "streams"), _streams, is_optional=True),
}
