import threading

import pytest

from kctl_agent.process import deadline


@pytest.fixture(autouse=True)
def no_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadline, "_of", threading.local())  # or the deadline of the previous test applies
