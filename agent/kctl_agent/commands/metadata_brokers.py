"""`metadata_brokers`: the brokers as this worker's client sees them."""

from __future__ import annotations

from kctl_agent.commands.base import Command
from kctl_agent.errors import NotReady
from kctl_agent.snapshot import Snapshot
from kctl_agent.wire import JsonObject

__all__ = ["METADATA_BROKERS", "answer"]


def answer(snapshot: Snapshot, _params: JsonObject, _now: float) -> JsonObject:
    """One row per broker.

    Raises:
        NotReady: no metadata has come from a broker yet; an empty list would be a lie.
    """
    if snapshot.brokers is None:
        raise NotReady(f"{snapshot.name} has no metadata from a broker yet: ask again")
    return {
        "rows": [
            {
                "node_id": broker.node_id,
                "host": broker.host,
                "port": broker.port,
                "rack": broker.rack,
                "controller": broker.controller,
            }
            for broker in snapshot.brokers
        ]
    }


METADATA_BROKERS = Command(
    "metadata_brokers", answer, "node id, host, port, rack of each broker; which is the controller"
)
