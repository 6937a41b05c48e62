from __future__ import annotations

import time

import pytest

from kctl.kafka.client.connection import ClusterConnection

PAUSES = 2


@pytest.fixture
def soon_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """After two pauses, only the reserve for later requests remains of a connection's time. The test may therefore
    allow minutes: it waits for a number of tries, even on a busy machine."""
    pause = ClusterConnection.pause
    pauses: dict[int, int] = {}

    def counted(connection: ClusterConnection) -> None:
        pauses[id(connection)] = pauses.get(id(connection), 0) + 1
        if pauses[id(connection)] >= PAUSES:
            connection.deadline._at = time.monotonic() + connection.deadline.timeout_seconds * 0.19
        pause(connection)

    monkeypatch.setattr(ClusterConnection, "pause", counted)
