"""What every test of a worker begins with."""

from __future__ import annotations

import threading

import pytest

from kctl_agent.process import deadline


@pytest.fixture(autouse=True)
def no_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of a turn in the test before is this thread's too."""
    monkeypatch.setattr(deadline, "_of", threading.local())
