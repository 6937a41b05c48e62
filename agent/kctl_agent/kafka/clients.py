"""Clean-up that clients of kafka-python 3.0.12 do not do themselves."""

from collections.abc import Callable
from typing import Any


def opened(kind: Any, **settings: Any) -> Any:
    """Makes a client. If no broker answers, ends the I/O thread that kafka-python's constructor leaves running."""
    client = kind.__new__(kind)
    try:
        client.__init__(**settings)
    except Exception:
        if hasattr(client, "_client"):
            client._client.close()  # noqa: SLF001 - see above
        raise
    return client


def forget_coordinators(admin: Any) -> None:
    """Forgets coordinators, because `KafkaAdminClient` keeps a dead one for ever. Call it after a failed request."""
    admin._manager.cluster._coordinators.clear()  # noqa: SLF001 - see above


def take_up_forgotten_join(consumer: Any) -> None:
    """Resumes a join that outlasts a poll. Call this before each poll, because kafka-python 3.0.12 can forget the join:

    - New metadata caused the join, and this member is the leader. Once it has computed the assignment, `need_rejoin` is
      false, so its next poll does not await the join's result. Heartbeats stay off, so the group evicts the leader,
      which never rejoins.
    - The join ends between two polls. The next poll ignores the result and starts another join, so all members rejoin.
      Two members that poll rarely can make each other rejoin for ever, and neither reads.
    """
    from kafka.coordinator.base import MemberState

    coordinator = consumer._coordinator  # noqa: SLF001 - there is no public way to ask
    if consumer.group_metadata().state != MemberState.REBALANCING:
        return
    if not coordinator.need_rejoin():
        coordinator.request_rejoin()
    join = coordinator._join_task  # noqa: SLF001
    if join is not None and join.is_done and join.exception is None:
        coordinator._join_task = _EndedJoin(join.value)  # noqa: SLF001


class _EndedJoin:
    """An ended join that counts as running, because `BaseCoordinator.join_group_async` would replace an ended one."""

    is_done = False

    def __init__(self, value: Any) -> None:
        self._value = value

    def add_callback(self, callback: Callable[[Any], Any]) -> None:
        callback(self._value)

    def add_errback(self, callback: Callable[[BaseException], Any]) -> None: ...
