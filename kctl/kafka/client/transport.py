"""Requests over kafka-python's connections, many at once, each answered by a response or by an error in one sentence.

Built on its connection manager, which does the bytes, TLS, SASL and protocol versions. No thread is started: the loop
turns while an answer is waited for, on the thread that asks. Connections are made with `refresh_metadata_on_err=False`,
or one that breaks begins a loop of kafka-python's own that asks for metadata.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from kafka import errors
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector

from kctl.errors import BrokerUnreachable, KctlError
from kctl.kafka.client.access import ClusterAccess
from kctl.kafka.client.reasons import failure

PAUSE_SECONDS = 0.1
"""The pause before a request is repeated."""
_RESERVE = 0.2
Node = int | str
"""A broker by its number, or the bootstrap server that answered first by kafka-python's name for it."""
_CLIENT_ID = "kctl"
_FRAME_BYTES = 512 * 1024 * 1024
"""The largest frame: the metadata of a hundred thousand partitions is tens of megabytes."""


class Deadline:
    """A deadline `timeout_seconds` after the making, or the last `renew`. Without retries nothing is asked again: for
    callers that poll anyway."""

    def __init__(
        self, timeout_seconds: float, *, has_retries: bool, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.timeout_seconds = timeout_seconds
        self._clock = clock
        self._retry_share = 0.5 if has_retries else 0.0
        self.advice = f"{'give it longer with --timeout, or ' if has_retries else ''}look at the broker"
        self.renew()

    def renew(self) -> None:
        """Begins the whole time again."""
        self._at = self._clock() + self.timeout_seconds

    @property
    def left_seconds(self) -> float:
        return max(self._at - self._clock(), 0.0)

    @property
    def left_milliseconds(self) -> float:
        """The time left as kafka-python takes it; at least 1, for 0 would be no limit."""
        return max(self.left_seconds * 1000, 1)

    @property
    def may_retry(self) -> bool:
        """Whether what fails is worth another try: for half of the time. Then there is still time to report it."""
        return self.left_seconds > self.timeout_seconds * (1 - self._retry_share)

    @property
    def may_wait(self) -> bool:
        """Whether what is only just starting is worth waiting for: until a fifth of the time is left. One group that
        never stops loading must leave time for the questions that come after it."""
        return self._retry_share > 0 and self.left_seconds > self.timeout_seconds * _RESERVE + PAUSE_SECONDS


class _Manager(KafkaConnectionManager):  # type: ignore[misc]  # kafka-python is not typed
    """A connection manager that keeps a broker's last bytes. kafka-python 3.0 throws away what arrives together with
    the end of a connection, and that is just how a broker reports a wrong password."""

    async def _build_transport(self, node: Any, timeout_at: float | None = None) -> Any:
        transport = await super()._build_transport(node, timeout_at=timeout_at)
        receive = transport._sock_recv  # noqa: SLF001 - there is no other place between socket and loss

        def bytes_first() -> tuple[bytes, Any]:
            data, end = receive()
            return (data, None) if data else (data, end)  # the end is read again, by itself

        transport._sock_recv = bytes_first  # noqa: SLF001 - as above
        return transport


class Transport:
    """Connections to brokers. Not thread-safe; `close` it. Brokers are named by the caller, for sentences."""

    def __init__(self, access: ClusterAccess, deadline: Deadline) -> None:
        self._deadline = deadline
        milliseconds = max(int(deadline.timeout_seconds * 1000), 1)
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
        self.asked: Counter[str] = Counter()
        """Number of requests sent, by name; what opening a connection takes is not counted."""

    def close(self) -> None:
        self._manager.close()
        self._net.close()

    @property
    def bootstrap_servers(self) -> list[Any]:
        """Returns the bootstrap servers, each with `node_id`, `host` and `port`."""
        servers: list[Any] = self._manager.cluster.bootstrap_brokers()
        return servers

    def update_metadata(self, response: Any) -> None:
        """Takes in brokers, which are known by their numbers from now on."""
        self._manager.cluster.update_metadata(response)

    def connect(self, node: Node, seconds: float) -> None:
        """Connects to a broker, within so many seconds. Raises kafka-python's error, or OSError."""
        self._net.run(self._connect, node, seconds)

    def send_each(self, questions: Sequence[tuple[Node, str, Any]]) -> list[Any]:
        """Sends (broker, its name, request) all at once: the responses in the order of the questions, a KctlError in
        place of each that has none."""
        outcomes: list[Any] = self._net.run(self._send_each, questions)
        return outcomes

    def pause(self) -> None:
        self._net.run(self._pause)

    async def _pause(self) -> None:
        await self._net.sleep(PAUSE_SECONDS)

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
        """Sends a request; returns the response to come, or why nothing could be sent."""
        self.asked[request.name.removesuffix("Request")] += 1
        try:
            # Made here, lest a broken connection start kafka-python's own metadata loop beside ours.
            self._manager.get_connection(node, refresh_metadata_on_err=False)
            return self._manager.send(request, node, self._deadline.left_seconds * 1000)
        except (errors.KafkaError, OSError) as error:
            return error

    async def _outcome(self, name: str, request: Any, future: Any) -> Any | KctlError:
        try:
            if isinstance(future, BaseException):
                raise future
            return await self._manager.wait_for(future, self._deadline.left_milliseconds)
        except (errors.KafkaTimeoutError, errors.RequestTimedOutError):
            return BrokerUnreachable(
                f"{name} did not answer {request.name} within {self._deadline.timeout_seconds:g} s: "
                f"{self._deadline.advice}"
            )
        except (errors.KafkaError, OSError) as error:
            return failure(error, f"{name}, {request.name}")
