"""A connection to a cluster: requests to its brokers, to many of them at once, under one deadline.

kafka-python's admin client is not used here: it asks one broker after the other, raises the first error of a partition
and drops the answers of the others. `transport` sends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from types import TracebackType
from typing import Any, NamedTuple

from kafka import errors
from kafka.protocol.metadata import CoordinatorType, FindCoordinatorRequest, MetadataRequest

from kctl.errors import BrokerUnreachable, KctlError
from kctl.kafka.client.access import ClusterAccess
from kctl.kafka.client.reasons import code_failure
from kctl.kafka.client.transport import Deadline, Node, Transport

_NOT_NOW = {
    errors.CoordinatorNotAvailableError.errno,
    errors.CoordinatorLoadInProgressError.errno,
}


class Broker(NamedTuple):
    """A broker as the cluster advertises it."""

    node_id: int
    host: str
    port: int
    rack: str | None

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"


class ClusterConnection:
    """A client of a cluster's brokers. Not thread-safe. Use it with `with`, or `close` it. Without retries nothing is
    asked again: for callers that poll anyway."""

    def __init__(self, access: ClusterAccess, timeout_seconds: float, *, has_retries: bool = True) -> None:
        self.access = access
        self.deadline = Deadline(timeout_seconds, has_retries=has_retries)
        self._transport = Transport(access, self.deadline)
        self._coordinators = _Coordinators(takes_only_broker=has_retries)
        self.first: Node = ""
        """The broker that answered first."""
        self._same_as_first: int | None = None
        self.brokers: dict[int, Broker] = {}
        self.controller_id: int | None = None
        self.cluster_id: str | None = None

    def __enter__(self) -> ClusterConnection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._transport.close()

    @property
    def asked(self) -> Counter[str]:
        """How many requests were sent, by name; what opening a connection takes is not counted."""
        return self._transport.asked

    def open(self, topics: Iterable[str] | None = ()) -> Any:
        """Connects to the first bootstrap server that answers; returns its Metadata of `topics`, or of all (None).
        Raises BrokerUnreachable, WrongProtocol, AuthenticationFailed, NotAuthorised: and why."""
        servers = self._transport.bootstrap_servers
        problem: BaseException = OSError("there is no bootstrap server")
        for left, server in zip(range(len(servers), 0, -1), servers, strict=True):
            try:
                self._transport.connect(server.node_id, self.deadline.left_seconds / left)
                self.first = server.node_id
                return self.metadata(topics)
            except (errors.KafkaError, KctlError, OSError, ValueError) as error:
                problem = error
        from kctl.kafka.client.diagnosis import diagnose

        raise diagnose(problem, self.access, min(self.deadline.left_seconds + 1.0, 5.0))

    def metadata(self, topics: Iterable[str] | None) -> Any:
        """Requests metadata of topics, or of all (None), as kafka-python's MetadataResponse; brokers are taken note of.
        Raises KctlError: nobody answered."""
        requested = None if topics is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(
            topics=requested,
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        )
        response = self.ask_anybody(request)
        self._transport.update_metadata(response)
        self.brokers = {
            broker.node_id: Broker(broker.node_id, broker.host, broker.port, broker.rack) for broker in response.brokers
        }
        self.controller_id = response.controller_id if response.controller_id >= 0 else None
        self.cluster_id = response.cluster_id
        if self._same_as_first is None:
            first = next(each for each in self._transport.bootstrap_servers if each.node_id == self.first)
            self._same_as_first = next(
                (each.node_id for each in self.brokers.values() if (each.host, each.port) == (first.host, first.port)),
                None,
            )
        return response

    def ask(self, request: Any, node: Node | None = None) -> Any:
        """Returns one response; `node` None asks the broker that answered first. Raises KctlError: no answer in time,
        or none at all."""
        [outcome] = self.ask_each([(self.first if node is None else node, request)])
        if isinstance(outcome, KctlError):
            raise outcome
        return outcome

    def ask_anybody(self, request: Any) -> Any:
        """Returns one response, of the broker that answered first or, if that one is gone, of any other. Raises
        KctlError: of the last one that was tried."""
        for node in [self.first, *(node for node in self.brokers if node != self._same_as_first)]:
            [outcome] = self.ask_each([(node, request)])
            if not isinstance(outcome, BrokerUnreachable):
                break
        if isinstance(outcome, KctlError):
            raise outcome
        return outcome

    def ask_each(self, questions: Iterable[tuple[Node, Any]]) -> list[Any]:
        """Asks all at once: the responses in the order of the questions, a KctlError in place of each that has none."""
        return self._transport.send_each(
            [(self._as_first(node), self._named(node), request) for node, request in questions]
        )

    def coordinators(self, groups: Iterable[str]) -> dict[str, int | KctlError]:
        """Returns which broker coordinates each group; a coordinator that is only just starting is waited for."""
        return self._coordinators.find(self, groups)

    def forget_coordinators(self, groups: Iterable[str]) -> None:
        """Forgets the coordinators of groups that are gone."""
        self._coordinators.drop(groups)

    def pause(self) -> None:
        """Waits before a request is repeated; coordinators are found anew then."""
        self._coordinators.forget()
        self._transport.pause()

    def _as_first(self, node: Node) -> Node:
        """Returns the connection that is open already, where it leads to the same broker."""
        return self.first if node == self._same_as_first else node

    def _named(self, node: Node) -> str:
        if isinstance(node, int):
            broker = self.brokers.get(node)
            return f"broker {node} at {broker.address}" if broker else f"broker {node}"
        return f"the broker at {self.access.named}"


class _Coordinators:
    """The coordinators of groups: which broker, found once, and again when it has moved."""

    def __init__(self, *, takes_only_broker: bool) -> None:
        """`takes_only_broker`: in a cluster with one broker nothing is asked before the first `forget`."""
        self._known: dict[str, int] = {}
        self._takes_only_broker = takes_only_broker

    def forget(self) -> None:
        """Forgets all coordinators. From now on also the only broker is asked whether it is the coordinator: the topic
        of the offsets, which may not exist yet, is created by that question."""
        self._takes_only_broker = False
        self._known.clear()

    def drop(self, groups: Iterable[str]) -> None:
        """Forgets these coordinators until they are needed; of groups that never come back nothing is kept."""
        for group in groups:
            self._known.pop(group, None)

    def find(self, connection: ClusterConnection, groups: Iterable[str]) -> dict[str, int | KctlError]:
        """Returns the broker for each group; a coordinator that is only just starting is waited for."""
        groups = dict.fromkeys(groups)
        if len(connection.brokers) == 1 and self._takes_only_broker:
            return dict.fromkeys(groups, next(iter(connection.brokers)))
        found: dict[str, int | KctlError] = {name: self._known[name] for name in groups if name in self._known}
        names = [name for name in groups if name not in found]
        while names:
            again = []
            for name, (code, node_id, remark) in _asked(connection, names).items():
                if code in _NOT_NOW and connection.deadline.may_wait:
                    again.append(name)
                elif code:
                    found[name] = code_failure(code, f"the coordinator of {name}", remark)
                else:
                    found[name] = self._known[name] = node_id
            names = again
            if names:
                connection.pause()
        return found


def _asked(connection: ClusterConnection, names: list[str]) -> dict[str, tuple[int, int, str | None]]:
    """Error code, broker and remark for each name; one request for all (Kafka 3.0, KIP-699)."""
    request = FindCoordinatorRequest(key_type=CoordinatorType.GROUP, coordinator_keys=names, min_version=4)
    response = connection.ask_anybody(request)
    return {each.key: (each.error_code, each.node_id, each.error_message) for each in response.coordinators}
