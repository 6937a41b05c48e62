"""What of an operation is an event of the fleet."""

from __future__ import annotations

from kctl.master.operations.base import Operation
from kctl_agent.replies.workers import Event

__all__ = ["operation_events"]


def operation_events(operation: Operation) -> list[Event]:
    """The end of an operation is an event; its beginning is not."""
    if operation.ended_at is None:
        return []
    params = operation.params
    worker, topic, partition = params.get("name", params.get("worker")), params.get("topic"), params.get("partition")
    text = f"{operation.words}, by {operation.by}: {operation.state}" + (
        f"; {operation.text}" if operation.text else ""
    )
    return [Event(operation.ended_at, "operation", text, topic, partition, worker=worker)]
