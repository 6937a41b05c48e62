"""A connection to a cluster. It sends requests to many brokers at once, under one deadline.

It replaces kafka-python's admin client, which asks brokers one after another. If one partition has an error, that
client drops all other answers. This module starts no thread: kafka-python's loop runs on the caller's thread.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from kafka import errors
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector
from kafka.protocol.metadata import CoordinatorType, FindCoordinatorRequest, MetadataRequest

from kctl.errors import BrokerUnreachable, KctlError
from kctl.kafka.client.access import ClusterAccess
from kctl.kafka.client.reasons import code_failure, failure, or_raise

PAUSE_SECONDS = 0.1
Node = int | str  # a broker's number, or kafka-python's name of a bootstrap server
_CLIENT_ID = "kctl"


class Deadline:
    """A deadline, `timeout_seconds` after construction or the last `renew`."""

    def __init__(
        self, timeout_seconds: float, *, has_retries: bool, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.timeout_seconds = timeout_seconds
        self._clock = clock
        self._retry_share = 0.5 if has_retries else 0.0
        self.advice = f"{'give it longer with --timeout, or ' if has_retries else ''}look at the broker"
        self.renew()

    def renew(self) -> None:
        self._at = self._clock() + self.timeout_seconds

    @property
    def left_seconds(self) -> float:
        return max(self._at - self._clock(), 0.0)

    @property
    def left_milliseconds(self) -> int:
        """The time left. It is at least 1, because kafka-python treats 0 as no limit."""
        return max(int(self.left_seconds * 1000), 1)

    @property
    def may_retry(self) -> bool:
        """Whether to ask again: true in the first half of the time, so that enough time is left for the retry."""
        return self.left_seconds > self.timeout_seconds * (1 - self._retry_share)

    @property
    def may_wait(self) -> bool:
        """Whether to wait for brokers that are not ready: true until a fifth of the time is left."""
        # A group that loads forever must leave time for later requests.
        return self._retry_share > 0 and self.left_seconds > self.timeout_seconds / 5 + PAUSE_SECONDS


class _Manager(KafkaConnectionManager):  # type: ignore[misc]  # kafka-python is not typed
    async def _build_transport(self, node: Any, timeout_at: float | None = None) -> Any:
        # kafka-python 3.0 drops bytes that arrive with the end of a connection, such as the error for a wrong password.
        transport = await super()._build_transport(node, timeout_at=timeout_at)
        receive = transport._sock_recv  # noqa: SLF001 - the only place between socket and loss

        def bytes_first() -> tuple[bytes, Any]:
            data, end = receive()
            return (data, None) if data else (data, end)  # the next call reads the end again

        transport._sock_recv = bytes_first  # noqa: SLF001 - as above
        return transport


_NOT_NOW = {errors.CoordinatorNotAvailableError.errno, errors.CoordinatorLoadInProgressError.errno}


class Broker(NamedTuple):
    node_id: int
    host: str
    port: int
    rack: str | None

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"


class ClusterConnection:
    """A client of a cluster's brokers. Not thread-safe. Use it in a `with` statement, or `close` it. Callers that
    poll periodically pass `has_retries=False`, because the next poll is the retry."""

    def __init__(self, access: ClusterAccess, timeout_seconds: float, *, has_retries: bool = True) -> None:
        self.access = access
        self.deadline = Deadline(timeout_seconds, has_retries=has_retries)
        self.asked: Counter[str] = Counter()
        """The number of requests by name, without those that open connections."""
        self._net = NetworkSelector(client_id=_CLIENT_ID)
        try:
            self._manager = _Manager(self._net, **access.client_settings() | _settings(timeout_seconds))
        except BaseException:
            self._net.close()
            raise
        self._coordinators: dict[str, int] = {}
        self._takes_only_broker = has_retries  # as the coordinator, without a request
        self.first: Node = ""
        self._same_as_first: int | None = None
        self.brokers: dict[int, Broker] = {}
        self.controller_id: int | None = None
        self.cluster_id: str | None = None

    def __enter__(self) -> ClusterConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._manager.close()
        self._net.close()

    def open(self, topics: Iterable[str] | None = ()) -> Any:
        """Connects to the first bootstrap server that answers, and returns its Metadata of `topics`. None means all
        topics. Raises BrokerUnreachable, WrongProtocol, AuthenticationFailed, NotAuthorised."""
        servers = self._manager.cluster.bootstrap_brokers()
        problem: BaseException = OSError("there is no bootstrap server")
        for left, server in zip(range(len(servers), 0, -1), servers, strict=True):
            try:
                self._net.run(self._connect, server.node_id, self.deadline.left_seconds / left)
                self.first = server.node_id
                return self.metadata(topics)
            except (errors.KafkaError, KctlError, OSError, ValueError) as error:
                problem = error
        from kctl.kafka.client.diagnosis import diagnose

        raise diagnose(problem, self.access, min(self.deadline.left_seconds + 1.0, 5.0))

    def metadata(self, topics: Iterable[str] | None) -> Any:
        """Returns Metadata of `topics` (None: all). Updates this object's brokers and ids. Raises KctlError."""
        requested = None if topics is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(
            topics=requested,
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        )
        response = self.ask_anybody(request)
        self._manager.cluster.update_metadata(response)
        self.brokers = {
            broker.node_id: Broker(broker.node_id, broker.host, broker.port, broker.rack) for broker in response.brokers
        }
        self.controller_id = response.controller_id if response.controller_id >= 0 else None
        self.cluster_id = response.cluster_id
        if self._same_as_first is None:
            servers = self._manager.cluster.bootstrap_brokers()
            first = next(each for each in servers if each.node_id == self.first)
            self._same_as_first = next(
                (each.node_id for each in self.brokers.values() if (each.host, each.port) == (first.host, first.port)),
                None,
            )
        return response

    def ask(self, request: Any, node: Node | None = None) -> Any:
        """Asks one broker, by default the one that `open` chose. Raises KctlError."""
        [outcome] = self.ask_each([(self.first if node is None else node, request)])
        return or_raise(outcome)

    def ask_anybody(self, request: Any) -> Any:
        """Asks the broker that `open` chose. If it does not answer, asks the others in turn. Raises KctlError."""
        for node in [self.first, *(node for node in self.brokers if node != self._same_as_first)]:
            [outcome] = self.ask_each([(node, request)])
            if not isinstance(outcome, BrokerUnreachable):
                break
        return or_raise(outcome)

    def ask_each(self, questions: Iterable[tuple[Node, Any]]) -> list[Any]:
        """Sends all requests at once. Returns the response or a KctlError for each request, in order."""
        sent = [
            (self.first if node == self._same_as_first else node, self._named(node), request)
            for node, request in questions
        ]
        outcomes: list[Any] = self._net.run(self._send_each, sent)
        return outcomes

    def coordinators(self, groups: Iterable[str]) -> dict[str, int | KctlError]:
        """Returns each group's coordinator, or the error. Waits for a coordinator that is starting."""
        groups = dict.fromkeys(groups)
        if len(self.brokers) == 1 and self._takes_only_broker:
            return dict.fromkeys(groups, next(iter(self.brokers)))
        known = self._coordinators
        found: dict[str, int | KctlError] = {name: known[name] for name in groups if name in known}
        names = [name for name in groups if name not in found]
        while names:
            again = []
            for each in self._find_coordinators(names):
                if each.error_code in _NOT_NOW and self.deadline.may_wait:
                    again.append(each.key)
                elif each.error_code:
                    found[each.key] = code_failure(
                        each.error_code, f"the coordinator of {each.key}", each.error_message
                    )
                else:
                    found[each.key] = known[each.key] = each.node_id
            names = again
            if names:
                self.pause()
        return found

    def forget_coordinators(self, groups: Iterable[str]) -> None:
        for group in groups:
            self._coordinators.pop(group, None)

    def pause(self) -> None:
        self._takes_only_broker = False  # the request creates a missing offsets topic
        self._coordinators.clear()
        self._net.run(self._net.sleep, PAUSE_SECONDS)

    def _find_coordinators(self, names: list[str]) -> Any:
        # One request for all groups (Kafka 3.0, KIP-699).
        request = FindCoordinatorRequest(key_type=CoordinatorType.GROUP, coordinator_keys=names, min_version=4)
        return self.ask_anybody(request).coordinators

    def _named(self, node: Node) -> str:
        if isinstance(node, int):
            broker = self.brokers.get(node)
            return f"broker {node} at {broker.address}" if broker else f"broker {node}"
        return f"the broker at {self.access.named}"

    async def _connect(self, node: Node, seconds: float) -> None:
        connection = self._manager.get_connection(
            node, timeout_ms=max(seconds * 1000, 1), refresh_metadata_on_err=False, reset_backoff_on_connect=False
        )
        await self._manager.wait_for(connection.init_future, max(seconds * 1000, 1))

    async def _send_each(self, questions: Sequence[tuple[Node, str, Any]]) -> list[Any]:
        futures = [self._sent(node, request) for node, _, request in questions]
        return [
            await self._outcome(name, request, future)
            for (_, name, request), future in zip(questions, futures, strict=True)
        ]

    def _sent(self, node: Node, request: Any) -> Any:
        self.asked[request.name.removesuffix("Request")] += 1
        try:
            # `refresh_metadata_on_err=False`, or a broken connection would start kafka-python's own metadata loop.
            self._manager.get_connection(node, refresh_metadata_on_err=False)
            return self._manager.send(request, node, self.deadline.left_seconds * 1000)
        except (errors.KafkaError, OSError) as error:
            return error

    async def _outcome(self, name: str, request: Any, future: Any) -> Any | KctlError:
        try:
            if isinstance(future, BaseException):
                raise future
            return await self._manager.wait_for(future, self.deadline.left_milliseconds)
        except (errors.KafkaTimeoutError, errors.RequestTimedOutError):
            return BrokerUnreachable(
                f"{name} did not answer {request.name} within {self.deadline.timeout_seconds:g} s: "
                f"{self.deadline.advice}"
            )
        except (errors.KafkaError, OSError) as error:
            return failure(error, f"{name}, {request.name}")


def _settings(timeout_seconds: float) -> dict[str, Any]:
    milliseconds = max(int(timeout_seconds * 1000), 1)
    return {
        "client_id": _CLIENT_ID,
        "request_timeout_ms": milliseconds,
        "socket_connection_setup_timeout_ms": milliseconds,
        "max_in_flight_requests_per_connection": 1000,
        "receive_message_max_bytes": 512 * 1024 * 1024,  # metadata of 100,000 partitions takes tens of megabytes
        "reconnect_backoff_ms": 20,
    }
