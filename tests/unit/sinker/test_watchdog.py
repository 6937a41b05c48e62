from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence

import pytest

from kctl_agent.sinker.in_flight import InFlightClaim, Part
from kctl_agent.sinker.watchdog import Watchdog
from kctl_agent.storage.base import StorageUnusable
from kctl_agent.storage.claim import Claim
from tests.conformance.given import fill
from tests.conftest import eventually
from tests.scratch_storage import ScratchStorage

LEASE_SECONDS = 0.3
LONG = 60.0


class _Storage(ScratchStorage):
    def __init__(self) -> None:
        super().__init__(block_messages=3)
        self.renewed: list[str] = []
        self.failures = 0

    def renew(self, claim: Claim, lease_seconds: float) -> bool:
        if self.failures:
            self.failures -= 1
            raise StorageUnusable("no room")
        self.renewed.append(claim.id)
        return super().renew(claim, lease_seconds)


class _Watched:
    def __init__(self, lease_seconds: float, timeout_seconds: float) -> None:
        self.storage = _Storage()
        self.lost: list[InFlightClaim] = []
        self.timed_out: list[Sequence[Part]] = []
        self.guard = Watchdog(self.storage, lease_seconds, timeout_seconds, self.lost.append, self.timed_out.append)
        fill(self.storage, 6)

    def claimed(self, lease_seconds: float = LONG) -> InFlightClaim:
        (claim,) = self.storage.claim("a", 3, lease_seconds)
        return InFlightClaim.of(claim)


@pytest.fixture
def watched() -> Iterator[Callable[..., _Watched]]:
    made: list[_Watched] = []

    def make(lease_seconds: float = LEASE_SECONDS, timeout_seconds: float = LONG) -> _Watched:
        made.append(_Watched(lease_seconds, timeout_seconds))
        return made[-1]

    yield make
    for each in made:
        each.guard.close()


def test_a_lease_is_renewed_as_long_as_its_claim_is_in_flight(watched: Callable[..., _Watched]) -> None:
    own = watched()
    kept, dropped = own.claimed(), own.claimed()
    own.guard.hold(kept)
    own.guard.hold(dropped)
    own.guard.start()
    eventually(lambda: set(own.storage.renewed) == {kept.claim.id, dropped.claim.id})

    own.guard.drop(dropped)
    own.storage.renewed.clear()
    eventually(lambda: len(own.storage.renewed) > 2)

    assert set(own.storage.renewed) == {kept.claim.id}
    assert (own.lost, own.timed_out) == ([], [])


def test_a_lost_lease_is_reported_once_and_not_renewed_again(watched: Callable[..., _Watched]) -> None:
    own = watched()
    first, second = own.claimed(), own.claimed()
    own.storage.release("a")
    for each in (first, second):
        own.guard.hold(each)
    own.storage.claim("a", 3, LONG)  # the same block, under another lease
    own.guard.start()
    eventually(lambda: len(own.lost) == 2)

    assert {each.claim.id for each in own.lost} == {first.claim.id, second.claim.id}
    assert first.is_lost
    assert second.is_lost
    own.storage.renewed.clear()
    (other,) = own.storage.claim("b", 3, LONG)
    own.guard.hold(InFlightClaim.of(other))
    eventually(lambda: len(own.storage.renewed) > 2)
    assert set(own.storage.renewed) == {other.id}
    assert len(own.lost) == 2


def test_a_failed_renewal_is_tried_again(watched: Callable[..., _Watched], caplog: pytest.LogCaptureFixture) -> None:
    own = watched()
    claimed = own.claimed()
    own.storage.failures = 2
    own.guard.hold(claimed)
    with caplog.at_level(logging.WARNING):
        own.guard.start()
        eventually(lambda: own.storage.renewed)

    assert caplog.messages == ["a lease could not be renewed: no room"] * 2
    assert not claimed.is_lost


def test_a_call_that_had_its_time_is_reported_and_never_comes_back(watched: Callable[..., _Watched]) -> None:
    own = watched(timeout_seconds=0.05)
    call = [Part(own.claimed(), 0, 3)]
    returned, may_return = threading.Event(), threading.Event()

    def handle() -> None:
        with own.guard.calling(call):
            may_return.wait()
        returned.set()

    thread = threading.Thread(target=handle)
    thread.start()
    own.guard.start()
    eventually(lambda: own.timed_out == [call])
    may_return.set()

    assert not returned.wait(0.2), "the guard is ending the process"
    own.guard.close()  # only here, to end the thread; in a sinker the process has ended
    thread.join()
    assert own.timed_out == [call]
