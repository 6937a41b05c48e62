"""Works around defects of kafka-python 3.0.12."""

from collections.abc import Callable
from typing import Any


def opened(kind: Any, **settings: Any) -> Any:
    """Makes a client. After an error, ends the I/O thread that kafka-python's constructor leaves running."""
    client = kind.__new__(kind)
    try:
        client.__init__(**settings)
    except Exception:
        if hasattr(client, "_client"):
            client._client.close()  # noqa: SLF001 - see above
        raise
    return client


def forget_coordinators(admin: Any) -> None:
    """Forgets coordinators. Call this after a failed request, because `KafkaAdminClient` keeps dead coordinators."""
    admin._manager.cluster._coordinators.clear()  # noqa: SLF001 - see above


def take_up_forgotten_join(consumer: Any) -> None:
    """Resumes a group join that kafka-python may forget between two polls. Call this before each poll."""
    from kafka.coordinator.base import MemberState

    coordinator = consumer._coordinator  # noqa: SLF001 - there is no public way to ask
    if consumer.group_metadata().state != MemberState.REBALANCING:
        return
    # If new metadata caused the join, `need_rejoin` is false once the leader has computed the assignment. Its next poll
    # would not await the join. Heartbeats are off meanwhile, so the group would evict the leader, which never rejoins.
    if not coordinator.need_rejoin():
        coordinator.request_rejoin()
    # Members that poll rarely could rejoin for ever: a poll starts a new join if one has ended since the last poll.
    join = coordinator._join_task  # noqa: SLF001
    if join is not None and join.is_done and join.exception is None:
        coordinator._join_task = _EndedJoin(join.value)  # noqa: SLF001


class _EndedJoin:
    is_done = False  # although it has ended: `BaseCoordinator.join_group_async` would replace an ended join

    def __init__(self, value: Any) -> None:
        self._value = value

    def add_callback(self, callback: Callable[[Any], Any]) -> None:
        callback(self._value)

    def add_errback(self, callback: Callable[[BaseException], Any]) -> None: ...
