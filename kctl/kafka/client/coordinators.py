"""The coordinators of groups: which broker, found once, and again when it has moved."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kafka import errors
from kafka.protocol.metadata import CoordinatorType, FindCoordinatorRequest

from kctl.errors import KctlError
from kctl.kafka.client.reasons import code_failure

if TYPE_CHECKING:
    from kctl.kafka.client.connection import ClusterConnection

_NOT_NOW = {
    errors.CoordinatorNotAvailableError.errno,
    errors.CoordinatorLoadInProgressError.errno,
}


class Coordinators:
    """The known coordinators, for one connection."""

    def __init__(self, *, takes_only_broker: bool) -> None:
        """`takes_only_broker`: in a cluster with one broker nothing is asked before the first `forget`."""
        self._known: dict[str, int] = {}
        self._takes_only_broker = takes_only_broker

    def forget(self) -> None:
        """Forgets all coordinators. From now on also the only broker is asked whether it is the coordinator: the topic
        of the offsets, which may not exist yet, is created by that question."""
        self._takes_only_broker = False
        self._known.clear()

    def drop(self, groups: Iterable[str]) -> None:
        """Forgets these coordinators until they are needed; of groups that never come back nothing is kept."""
        for group in groups:
            self._known.pop(group, None)

    def find(self, connection: ClusterConnection, groups: Iterable[str]) -> dict[str, int | KctlError]:
        """Returns the broker for each group; a coordinator that is only just starting is waited for."""
        groups = dict.fromkeys(groups)
        if len(connection.brokers) == 1 and self._takes_only_broker:
            return dict.fromkeys(groups, next(iter(connection.brokers)))
        found: dict[str, int | KctlError] = {name: self._known[name] for name in groups if name in self._known}
        names = [name for name in groups if name not in found]
        while names:
            again = []
            for name, (code, node_id, remark) in _asked(connection, names).items():
                if code in _NOT_NOW and connection.deadline.may_wait:
                    again.append(name)
                elif code:
                    found[name] = code_failure(code, f"the coordinator of {name}", remark)
                else:
                    found[name] = self._known[name] = node_id
            names = again
            if names:
                connection.pause()
        return found


def _asked(connection: ClusterConnection, names: list[str]) -> dict[str, tuple[int, int, str | None]]:
    """Error code, broker and remark for each name; one request for all (Kafka 3.0, KIP-699)."""
    request = FindCoordinatorRequest(key_type=CoordinatorType.GROUP, coordinator_keys=names, min_version=4)
    response = connection.ask_anybody(request)
    return {each.key: (each.error_code, each.node_id, each.error_message) for each in response.coordinators}
