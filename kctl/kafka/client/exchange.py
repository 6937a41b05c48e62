"""One request and its response as the very bytes that went over the connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kctl.errors import KctlError

if TYPE_CHECKING:
    from kctl.kafka.client.connection import ClusterConnection, Node

__all__ = ["exchange"]


def exchange(
    connection: ClusterConnection, request: Any, node: Node | None = None
) -> tuple[bytes, bytes, KctlError | None]:
    """Sends a request and returns the bytes that went out and came back, and what went wrong, if anything did; `node`
    None asks the broker that answered first.

    Raises:
        KctlError: there is no connection.
    """
    [opened] = connection.connections([connection.first if node is None else node]).values()
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
    [outcome] = connection.ask_each([(opened.node_id, request)])
    return bytes(sent), bytes(received), outcome if isinstance(outcome, KctlError) else None
