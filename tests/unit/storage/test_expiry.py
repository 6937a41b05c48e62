from __future__ import annotations

from collections.abc import Callable

import pytest

from kctl_agent.storage.base import Storage
from kctl_agent.storage.limits import StorageLimits
from kctl_agent.storage.redis import storage as redis
from tests.conformance.given import fill, settle_dead, total
from tests.conftest import eventually


def kill(storage: Storage, count: int) -> None:
    fill(storage, count)
    for claim in storage.claim("a", 1000, 60.0):
        settle_dead(storage, claim)


@pytest.mark.shows("dead letters stay forever unless an age is set; their removal is an event")
def test_dead_letters_stay_for_ever_unless_they_may_not(storage: Storage) -> None:
    kill(storage, 3)
    for limits in (StorageLimits(), StorageLimits(dead_seconds=3600.0)):
        storage.limits = limits
        assert storage.expire_dead() == 0

    assert total(storage) == (0, 0, 0, 3)


def test_dead_letters_that_are_too_old_are_removed(
    storage: Storage, pass_time: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis, "PAGE", 2)
    kill(storage, 5)
    storage.limits = StorageLimits(dead_seconds=0.001)
    pass_time(1.0)

    removed: list[int] = []

    def is_gone() -> bool:
        removed.append(storage.expire_dead())
        return total(storage) == (0, 0, 0, 0)

    eventually(is_gone)
    assert sum(removed) == 5
