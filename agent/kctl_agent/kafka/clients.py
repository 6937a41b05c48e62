"""Clean-up that kafka-python's clients do not do by themselves (3.0.12). It is the caller's, and imported by it."""

from __future__ import annotations

from typing import Any


def opened(kind: Any, **settings: Any) -> Any:
    """Returns a new client. Where no broker answers it raises, and would leave its I/O thread behind, which ends."""
    client = kind.__new__(kind)
    try:
        client.__init__(**settings)
    except Exception:
        if hasattr(client, "_client"):
            client._client.close()  # noqa: SLF001 - see above
        raise
    return client


def forget_coordinators(admin: Any) -> None:
    """Makes a `KafkaAdminClient` find coordinators anew, after a question failed: it keeps a dead one for good."""
    admin._manager.cluster._coordinators.clear()  # noqa: SLF001 - see above
