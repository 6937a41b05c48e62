"""Sends many requests at once over kafka-python's connections; each ends with a response or an error in one sentence.
No thread is started: the loop runs on the asking thread while it waits."""

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
_RESERVE = 0.2
Node = int | str
"""A broker's number, or kafka-python's name of a bootstrap server."""
_CLIENT_ID = "kctl"
_FRAME_BYTES = 512 * 1024 * 1024
"""The metadata of 100,000 partitions takes tens of megabytes."""


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
    def left_milliseconds(self) -> float:
        """At least 1, because 0 means no limit to kafka-python."""
        return max(self.left_seconds * 1000, 1)

    @property
    def may_retry(self) -> bool:
        """Only in the first half of the time, which leaves time to report the failure."""
        return self.left_seconds > self.timeout_seconds * (1 - self._retry_share)

    @property
    def may_wait(self) -> bool:
        """Whether to wait for something that is starting: until a fifth of the time is left, so that one group that
        loads forever leaves time for later questions."""
        return self._retry_share > 0 and self.left_seconds > self.timeout_seconds * _RESERVE + PAUSE_SECONDS


class _Manager(KafkaConnectionManager):  # type: ignore[misc]  # kafka-python is not typed
    """Keeps a broker's last bytes: kafka-python 3.0 drops what arrives together with the end of a connection, which is
    how a broker reports a wrong password."""

    async def _build_transport(self, node: Any, timeout_at: float | None = None) -> Any:
        transport = await super()._build_transport(node, timeout_at=timeout_at)
        receive = transport._sock_recv  # noqa: SLF001 - the only place between socket and loss

        def bytes_first() -> tuple[bytes, Any]:
            data, end = receive()
            return (data, None) if data else (data, end)  # the next call reads the end again

        transport._sock_recv = bytes_first  # noqa: SLF001 - as above
        return transport


class Transport:
    """Connections to brokers. Not thread-safe; `close` it."""

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
        """By name, except for opening connections."""

    def close(self) -> None:
        self._manager.close()
        self._net.close()

    @property
    def bootstrap_servers(self) -> list[Any]:
        servers: list[Any] = self._manager.cluster.bootstrap_brokers()
        return servers

    def update_metadata(self, response: Any) -> None:
        self._manager.cluster.update_metadata(response)

    def connect(self, node: Node, seconds: float) -> None:
        """Connects to a broker. Raises the errors of kafka-python, OSError."""
        self._net.run(self._connect, node, seconds)

    def send_each(self, questions: Sequence[tuple[Node, str, Any]]) -> list[Any]:
        """Sends each (broker, its name for messages, request); returns responses in order, or their KctlErrors."""
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
        """Returns the future response, or why nothing could be sent."""
        self.asked[request.name.removesuffix("Request")] += 1
        try:
            # `refresh_metadata_on_err=False`, or a broken connection would start kafka-python's own metadata loop.
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
