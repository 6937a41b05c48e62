"""The reader of groups' committed offsets, asked of their coordinators poll after poll."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from kctl.errors import KctlError, WrongProtocol
from kctl.kafka.client.connection import ClusterConnection
from kctl.kafka.client.reasons import code_failure
from kctl.kafka.offsets import fetch_all
from kctl.kafka.protocol.committed_bytes import CommittedResponses, GroupOffsets
from kctl.kafka.protocol.flexible import UNREADABLE
from kctl.kafka.protocol.raw import KeptRequests


class CommittedReader:
    """Reads over one connection, on its thread."""

    def __init__(self) -> None:
        self._requests = KeptRequests()
        self._responses: dict[int, CommittedResponses] = defaultdict(CommittedResponses)

    def read(
        self, connection: ClusterConnection, groups: Mapping[int, list[str]]
    ) -> dict[str, GroupOffsets | KctlError]:
        """Requests all that each group has committed, partitions without an offset left out; the groups are given by
        coordinator. All is asked at once, once."""
        requests = [(node, self._requests.of(node, names, fetch_all)) for node, names in groups.items()]
        found: dict[str, GroupOffsets | KctlError] = {}
        for (node, names), answer in zip(groups.items(), connection.ask_each(requests), strict=True):
            if isinstance(answer, KctlError):
                found |= dict.fromkeys(names, answer)
                continue
            try:
                fetched = self._responses[node].read(answer.body)
            except UNREADABLE as error:
                found |= dict.fromkeys(names, WrongProtocol(f"a response to OffsetFetch cannot be read: {error}"))
                continue
            for name, (code, committed) in fetched.items():
                found[name] = code_failure(code, f"group {name}") if code else committed
        return found
