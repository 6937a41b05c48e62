"""Clean-up that clients of kafka-python 3.0.12 do not do themselves. The caller imports kafka-python."""

from __future__ import annotations

from typing import Any


def opened(kind: Any, **settings: Any) -> Any:
    """Creates a client. If no broker answers, its constructor raises but leaves the I/O thread running; this ends the
    thread."""
    client = kind.__new__(kind)
    try:
        client.__init__(**settings)
    except Exception:
        if hasattr(client, "_client"):
            client._client.close()  # noqa: SLF001 - see above
        raise
    return client


def forget_coordinators(admin: Any) -> None:
    """Makes a `KafkaAdminClient` find coordinators again after a failed request: it keeps a dead one for ever."""
    admin._manager.cluster._coordinators.clear()  # noqa: SLF001 - see above
