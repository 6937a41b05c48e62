"""For tests of what goes on until the time is over."""

from __future__ import annotations

import time

import pytest

from kctl.kafka.client.connection import ClusterConnection

PAUSES = 2


@pytest.fixture
def soon_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """After two pauses only the reserve is left of a connection's time, for the questions that come after.

    So such a test may give it minutes: what it waits for is a number of tries, however busy the machine is.
    """
    pause = ClusterConnection.pause
    pauses: dict[int, int] = {}

    def counted(connection: ClusterConnection) -> None:
        pauses[id(connection)] = pauses.get(id(connection), 0) + 1
        if pauses[id(connection)] >= PAUSES:
            connection.deadline._at = time.monotonic() + connection.deadline.timeout_seconds * 0.19
        pause(connection)

    monkeypatch.setattr(ClusterConnection, "pause", counted)
