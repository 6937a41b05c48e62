import threading

import pytest

from kctl_agent.process import deadline


@pytest.fixture(autouse=True)
def no_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """The deadline of the previous test's turn would apply to this thread too."""
    monkeypatch.setattr(deadline, "_of", threading.local())
