"""Locks of an object store, on a store in memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from obstore.store import MemoryStore

from kctl_agent.object_store import ObjectStore
from kctl_agent.storage.lake.folder import lease as lease_module
from kctl_agent.storage.lake.folder import s3 as s3_module
from kctl_agent.storage.lake.folder.s3 import S3Folder
from tests.acceptance.fleets import Eventually

LOCK = "_kctl/upkeep.lock"


class Clock:
    """Monotonic, and each process's own."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(lease_module, "time", made)
    return made


@pytest.fixture
def process() -> Callable[[], S3Folder]:
    """The table's folder, as a process of its own has it."""
    store: Any = MemoryStore()
    return lambda: S3Folder(ObjectStore("lake", "http://127.0.0.1:1", "us-east-1", None), "orders", store)


@pytest.fixture
def owners() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def holds(owners: ExitStack, folder: S3Folder) -> bool:
    """Also after the end of the owner's block, which comes with the test's."""
    return owners.enter_context(folder.lock(LOCK))


def test_an_owner_keeps_its_lock_whatever_the_clock_of_another_host_shows(
    process: Callable[[], S3Folder], owners: ExitStack, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Ahead(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return datetime.now(tz or UTC) + timedelta(hours=1)

    assert holds(owners, process())
    monkeypatch.setattr(s3_module, "datetime", Ahead)

    assert not holds(owners, process())


def test_a_lock_is_over_for_who_has_seen_it_unchanged_for_a_minute(
    process: Callable[[], S3Folder], owners: ExitStack, clock: Clock
) -> None:
    assert holds(owners, process())
    other = process()
    assert not holds(owners, other)
    clock.now += 59
    assert not holds(owners, other)
    assert not holds(owners, process())

    clock.now += 1
    assert not holds(owners, process()), "it sees it for the first time"
    assert holds(owners, other)
    clock.now += 1
    assert not holds(owners, process())


def test_a_lock_that_is_renewed_is_never_over(
    process: Callable[[], S3Folder], clock: Clock, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    monkeypatch.setattr(lease_module, "LEASE_SECONDS", 0.3)
    folder, other = process(), process()
    with folder.lock(LOCK) as is_ours:
        assert is_ours
        for _ in range(3):
            before = folder.read(LOCK)
            with other.lock(LOCK) as is_theirs:
                assert not is_theirs
            eventually(lambda before=before: folder.read(LOCK) != before, 10, "it is renewed")
            clock.now += 0.3


def test_a_lock_goes_on_being_renewed_after_a_request_that_failed(
    process: Callable[[], S3Folder], monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    monkeypatch.setattr(lease_module, "LEASE_SECONDS", 0.3)
    folder = process()
    find, failed = S3Folder.find, threading.Event()

    def failing(self: S3Folder, name: str) -> Any:
        if threading.current_thread().name == "kctl-lease" and not failed.is_set():
            failed.set()
            raise OSError(5, "the store does not answer")
        return find(self, name)

    monkeypatch.setattr(S3Folder, "find", failing)
    with folder.lock(LOCK):
        before = folder.read(LOCK)
        assert failed.wait(10)
        eventually(lambda: folder.read(LOCK) != before, 10, "it is renewed")


def test_an_owner_that_has_lost_its_lock_does_not_free_that_of_the_next(
    process: Callable[[], S3Folder], owners: ExitStack, clock: Clock
) -> None:
    frozen, other = process(), process()
    with frozen.lock(LOCK) as is_ours:
        assert is_ours
        assert not holds(owners, other)
        clock.now += 60
        assert holds(owners, other)

    assert other.find(LOCK) is not None
    assert not holds(owners, process())


def test_an_owner_that_has_lost_its_lock_does_not_renew_that_of_the_next(
    process: Callable[[], S3Folder], owners: ExitStack, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which has begun with the same content, so that both objects had one ETag."""
    frozen, other = process(), process()
    lost = lease_module.Lease(frozen, LOCK, {})
    assert lost.take()
    assert not holds(owners, other)
    clock.now += 60
    with other.lock(LOCK) as is_ours:
        assert is_ours
    assert holds(owners, process())
    before = other.read(LOCK)
    monkeypatch.setattr(lease_module, "LEASE_SECONDS", 0.0)

    lost._renew(threading.Event())

    assert other.read(LOCK) == before


def test_a_lock_whose_reply_was_lost_is_ours(
    process: Callable[[], S3Folder], owners: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    created = S3Folder._created

    def repeated(*args: Any) -> bool:
        created(*args)
        return created(*args)

    monkeypatch.setattr(S3Folder, "_created", repeated)

    assert holds(owners, process())


def test_who_does_not_come_again_waits_for_the_end_of_an_owner_that_is_gone_and_not_for_one_that_lives(
    process: Callable[[], S3Folder], owners: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_module, "LEASE_SECONDS", 3.0)  # it is renewed in time on a loaded machine too
    process().create(LOCK, b"of one that was killed")

    with process().lock_once(LOCK) as is_ours:
        assert is_ours
        with process().lock_once(LOCK) as is_theirs:
            assert not is_theirs
    with process().lock_once(LOCK) as is_ours:
        assert is_ours
