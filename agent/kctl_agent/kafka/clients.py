"""Clean-up that kafka-python's clients do not do by themselves (3.0.12). It is the caller's, and imported by it."""

from __future__ import annotations

from typing import Any

__all__ = ["forget_coordinators", "opened"]


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
    """Makes a `KafkaAdminClient` find every group's coordinator anew; to be called when a question to one failed.

    Its cache keeps a coordinator for good, also one that is dead or answers that it is none, and it has no public way
    to be emptied.
    """
    admin._manager.cluster._coordinators.clear()  # noqa: SLF001 - see above
