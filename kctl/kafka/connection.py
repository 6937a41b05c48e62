"""Questions to the brokers of a cluster, to many of them at once, under one deadline.

Built on kafka-python's connection manager, which does the bytes, TLS, SASL and protocol versions. Its admin client is
not used here: it asks one broker after the other, raises the first error of a partition and drops what the others
said. No thread is started: the loop turns while a question is waited for, on the thread that asks.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from types import TracebackType
from typing import Any, NamedTuple

from kafka import errors
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector
from kafka.protocol.metadata import CoordinatorType, FindCoordinatorRequest, MetadataRequest

from kctl.errors import BrokerUnreachable, KctlError
from kctl.kafka.access import Access
from kctl.kafka.reasons import code_failure, failure

__all__ = ["ALL_TOPICS", "Broker", "Connection", "Node"]

Node = int | str
"""A broker by its number, or the bootstrap server that answered first by kafka-python's name for it."""
ALL_TOPICS = None
_CLIENT_ID = "kctl"
_FRAME_BYTES = 512 * 1024 * 1024
"""The metadata of a hundred thousand partitions is tens of megabytes."""
_PAUSE_SECONDS = 0.1
_RESERVE = 0.2
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


class _Manager(KafkaConnectionManager):  # type: ignore[misc]  # kafka-python is not typed
    """Hears the last words of a broker. kafka-python 3.0 throws away what arrives together with the end of a
    connection, and that is just how a broker says that a password is wrong."""

    async def _build_transport(self, node: Any, timeout_at: float | None = None) -> Any:
        transport = await super()._build_transport(node, timeout_at=timeout_at)
        receive = transport._sock_recv  # noqa: SLF001 - there is no other place between socket and loss

        def words_first() -> tuple[bytes, Any]:
            data, end = receive()
            return (data, None) if data else (data, end)  # the end is read again, by itself

        transport._sock_recv = words_first  # noqa: SLF001 - as above
        return transport


class Connection:
    """Not thread-safe. Everything ends before `timeout_seconds` after the making, or the last `renew`, have passed. Use
    it with `with`, or `close` it. Without retries nothing is asked again: for callers that poll anyway."""

    def __init__(self, access: Access, timeout_seconds: float, *, has_retries: bool = True) -> None:
        self._access = access
        self._retry_share = 0.5 if has_retries else 0.0
        self._timeout_seconds = timeout_seconds
        self._deadline = time.monotonic() + timeout_seconds
        milliseconds = max(int(timeout_seconds * 1000), 1)
        settings = access.client_settings() | {
            "client_id": _CLIENT_ID,
            "request_timeout_ms": milliseconds,
            "socket_connection_setup_timeout_ms": milliseconds,
            "max_in_flight_requests_per_connection": 1000,
            "receive_message_max_bytes": _FRAME_BYTES,
            "reconnect_backoff_ms": 20,
        }
        self._net = NetworkSelector(client_id=_CLIENT_ID)
        try:
            self._manager = _Manager(self._net, **settings)
        except BaseException:
            self._net.close()
            raise
        self._first: Node = ""
        self._coordinators: dict[tuple[int, str], int] = {}
        """Of each kind and key, until one of them is asked for again."""
        self._takes_only_broker = has_retries
        self._same_as_first: int | None = None
        self.brokers: dict[int, Broker] = {}
        self.controller_id: int | None = None
        self.cluster_id: str | None = None
        self.asked: Counter[str] = Counter()
        """How many requests were sent, by name; what opening a connection takes is not counted."""

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._manager.close()
        self._net.close()

    @property
    def left_seconds(self) -> float:
        """What is left of the time."""
        return max(self._deadline - time.monotonic(), 0.0)

    @property
    def may_retry(self) -> bool:
        """Whether what fails is worth another try: for half of the time. Then there is still time to say so."""
        return self.left_seconds > self._timeout_seconds * (1 - self._retry_share)

    @property
    def may_wait(self) -> bool:
        """Whether what is only just starting is worth to be waited for: until a fifth of the time is left. One group
        that never stops loading must leave time for the questions that come after it."""
        return self._retry_share > 0 and self.left_seconds > self._timeout_seconds * _RESERVE + _PAUSE_SECONDS

    def renew(self) -> None:
        """From now on there is the whole time again."""
        self._deadline = time.monotonic() + self._timeout_seconds

    @property
    def access(self) -> Access:
        return self._access

    def open(self, topics: Iterable[str] | None = ()) -> Any:
        """Connect to the first bootstrap server that answers; returns its Metadata of `topics`, or of ALL_TOPICS.

        Raises:
            BrokerUnreachable, WrongProtocol, AuthenticationFailed, NotAuthorised: and why.
        """
        servers = self._manager.cluster.bootstrap_brokers()
        problem: BaseException = OSError("there is no bootstrap server")
        for left, server in zip(range(len(servers), 0, -1), servers, strict=True):
            try:
                self._net.run(self._connect, server.node_id, self.left_seconds / left)
                self._first = server.node_id
                return self.metadata(topics)
            except (errors.KafkaError, KctlError, OSError, ValueError) as error:
                problem = error
        from kctl.kafka.diagnosis import diagnose

        raise diagnose(problem, self._access, min(self.left_seconds + 1.0, 5.0))

    def metadata(self, topics: Iterable[str] | None) -> Any:
        """Metadata of these topics, or of ALL_TOPICS, as kafka-python's MetadataResponse; brokers are taken note of.

        Raises:
            KctlError: nobody answered.
        """
        wanted = None if topics is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(
            topics=wanted,
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
            first = next(b for b in self._manager.cluster.bootstrap_brokers() if b.node_id == self._first)
            self._same_as_first = next(
                (b.node_id for b in self.brokers.values() if (b.host, b.port) == (first.host, first.port)), None
            )
        return response

    def ask(self, request: Any, node: Node | None = None) -> Any:
        """One response; `node` None asks the broker that answered first.

        Raises:
            KctlError: no answer in time, or none at all.
        """
        [outcome] = self.ask_each([(self._first if node is None else node, request)])
        if isinstance(outcome, KctlError):
            raise outcome
        return outcome

    def ask_anybody(self, request: Any) -> Any:
        """One response, of the broker that answered first or, if that one is gone, of any other.

        Raises:
            KctlError: of the last one that was tried.
        """
        for node in [self._first, *(node for node in self.brokers if node != self._same_as_first)]:
            [outcome] = self.ask_each([(node, request)])
            if not isinstance(outcome, BrokerUnreachable):
                break
        if isinstance(outcome, KctlError):
            raise outcome
        return outcome

    def ask_each(self, questions: Iterable[tuple[Node, Any]]) -> list[Any]:
        """All at once: the responses in the order of the questions, a KctlError in place of each that has none."""
        outcomes: list[Any] = self._net.run(self._gather, list(questions))
        return outcomes

    def coordinators(self, keys: Iterable[str], kind: Any = CoordinatorType.GROUP) -> dict[str, int | KctlError]:
        """Which broker coordinates each group; a coordinator that is only just starting is waited for."""
        keys = list(dict.fromkeys(keys))
        if len(self.brokers) == 1 and kind == CoordinatorType.GROUP and self._takes_only_broker:
            return dict.fromkeys(keys, next(iter(self.brokers)))
        known = self._coordinators
        found: dict[str, int | KctlError] = {key: known[kind, key] for key in keys if (kind, key) in known}
        names = [key for key in keys if key not in found]
        while names:
            answers = self._find(names, kind)
            again = []
            for name, (code, node_id, said) in answers.items():
                if code in _NOT_NOW and self.may_wait:
                    again.append(name)
                elif code:
                    found[name] = code_failure(code, f"the coordinator of {name}", said)
                else:
                    found[name] = known[kind, name] = node_id
            names = again
            if names:
                self.pause()
        return found

    def pause(self) -> None:
        """Before the same is asked again. From then on also the only broker is asked whether it is the coordinator: the
        topic of the offsets, which may not exist yet, is made by that question."""
        self._takes_only_broker = False
        self._coordinators.clear()
        self._net.run(self._sleep)

    async def _sleep(self) -> None:
        await self._net.sleep(_PAUSE_SECONDS)

    def connections(self, nodes: Iterable[Node]) -> dict[Node, Any]:
        """kafka-python's connection to each broker, opened; a KctlError in its place where that fails."""

        async def opened(node: Node) -> Any:
            try:
                return await self._manager.wait_for(
                    self._manager.call_soon(self._open_one, self._as_first(node)), self.left_seconds * 1000
                )
            except (errors.KafkaError, OSError) as error:
                return failure(error, self._named(node))

        return {node: self._net.run(opened, node) for node in nodes}

    def exchange(self, request: Any, node: Node | None = None) -> tuple[bytes, bytes, KctlError | None]:
        """Send a request and return the very bytes that went out and came back, and what went wrong, if anything did.

        Raises:
            KctlError: there is no connection.
        """
        [opened] = self.connections([self._first if node is None else node]).values()
        if isinstance(opened, KctlError):
            raise opened
        sent, received = bytearray(), bytearray()
        send_bytes, receive_bytes = opened.parser.send_bytes, opened.parser.receive_bytes

        def sending() -> bytes:
            data: bytes = send_bytes()
            sent.extend(data)
            return data

        def receiving(data: bytes) -> Any:
            received.extend(data)
            return receive_bytes(data)

        opened.parser.send_bytes, opened.parser.receive_bytes = sending, receiving
        [outcome] = self.ask_each([(opened.node_id, request)])
        return bytes(sent), bytes(received), outcome if isinstance(outcome, KctlError) else None

    async def _open_one(self, node: Node) -> Any:
        return await self._manager.get_connection(node, refresh_metadata_on_err=False)

    async def _connect(self, node: Node, seconds: float) -> None:
        connection = self._manager.get_connection(
            node, timeout_ms=max(seconds * 1000, 1), refresh_metadata_on_err=False, reset_backoff_on_connect=False
        )
        await self._manager.wait_for(connection.init_future, max(seconds * 1000, 1))

    async def _gather(self, questions: list[tuple[Node, Any]]) -> list[Any]:
        futures: list[tuple[Node, Any, Any]] = []
        for node, request in questions:
            self.asked[request.name.removesuffix("Request")] += 1
            try:
                # Made here, lest a broken connection start kafka-python's own metadata loop beside ours.
                self._manager.get_connection(self._as_first(node), refresh_metadata_on_err=False)
                future: Any = self._manager.send(request, self._as_first(node), self.left_seconds * 1000)
            except (errors.KafkaError, OSError) as error:
                future = error
            futures.append((node, request, future))
        return [await self._outcome(node, request, future) for node, request, future in futures]

    async def _outcome(self, node: Node, request: Any, future: Any) -> Any:
        try:
            if isinstance(future, BaseException):
                raise future
            return await self._manager.wait_for(future, max(self.left_seconds * 1000, 1))
        except errors.KafkaTimeoutError:
            return BrokerUnreachable(
                f"{self._named(node)} did not answer {request.name} within {self._timeout_seconds:g} s: give it longer "
                "with --timeout, or look at the broker"
            )
        except (errors.KafkaError, OSError) as error:
            return failure(error, f"{self._named(node)}, {request.name}")

    def _find(self, names: list[str], kind: Any) -> dict[str, tuple[int, int, str | None]]:
        """Error code, broker and remark for each; one request for all where the broker can (Kafka 3.0, KIP-699)."""
        request = FindCoordinatorRequest(key_type=kind, coordinator_keys=names, min_version=4)
        try:
            response = self.ask_anybody(request)
        except BrokerUnreachable:
            raise
        except KctlError:
            responses = self.ask_each(
                [(self._first, FindCoordinatorRequest(key=name, key_type=kind, max_version=3)) for name in names]
            )
            problem = next((answer for answer in responses if isinstance(answer, KctlError)), None)
            if problem is not None:
                raise problem from None
            return {
                name: (answer.error_code, answer.node_id, answer.error_message)
                for name, answer in zip(names, responses, strict=True)
            }
        return {each.key: (each.error_code, each.node_id, each.error_message) for each in response.coordinators}

    def _as_first(self, node: Node) -> Node:
        """The connection that is open already, where it leads to the same broker."""
        return self._first if node == self._same_as_first else node

    def _named(self, node: Node) -> str:
        if isinstance(node, int):
            broker = self.brokers.get(node)
            return f"broker {node} at {broker.address}" if broker else f"broker {node}"
        return f"the broker at {self._access.named}"
