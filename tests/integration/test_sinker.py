"""Sinkers as real processes on a file storage: what they handle, and what becomes of it when they are killed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kctl_agent.storage.conformance.given import fill
from kctl_agent.storage.file import FileStorage
from tests.integration.sinker_handlers import ledger
from tests.integration.sinkers import SinkerProcess, place, sinker

__all__ = ["place", "sinker"]

Start = Callable[..., SinkerProcess]
Eventually = Callable[..., Any]


@pytest.fixture
def storage(place: Path) -> FileStorage:
    storage = FileStorage(place / "s.sqlite")
    storage.prepare()
    return storage


def is_empty(storage: FileStorage) -> bool:
    stats = storage.stats()
    return stats.pending == stats.processing == stats.delayed == 0


def handled(partition: int = 0) -> Counter[int]:
    return Counter(offset for offset, where in ledger() if where == partition)


@pytest.mark.parametrize("handler", ["counts", "counts_later", "Opened"])
def test_each_kind_of_handler_is_given_every_message_once(
    handler: str, sinker: Start, storage: FileStorage, eventually: Eventually
) -> None:
    fill(storage, 1200)
    one = sinker(handler)
    eventually(lambda: is_empty(storage), 20)

    eventually(lambda: one.figures.get("handled") == 1200)
    assert one.leave() == 0
    assert [offset for offset, _ in ledger() if offset >= 0] == list(range(1200))
    if handler == "Opened":
        assert [ledger()[0][0], ledger()[-1][0]] == [-1, -2]
