import errno
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from kctl_agent.errors import RegistryUnusable, Undecodable
from kctl_agent.message import Message
from kctl_agent.process import outages, stats
from kctl_agent.process.stop import StopRequest
from kctl_agent.replies.workers import Scope
from kctl_agent.rpc.operations import Inbox
from kctl_agent.rpc.server import AgentServer
from kctl_agent.sinker.handler import Handler
from kctl_agent.sinker.in_flight import InFlightClaim, Part
from kctl_agent.sinker.sinker import Sinker, SinkerSettings
from kctl_agent.sinker.stats import SinkerProcessStats
from kctl_agent.sinker.watchdog import Watchdog
from kctl_agent.storage.base import StorageUnusable
from kctl_agent.storage.claim import Claim
from tests.conformance.given import fill, total
from tests.conftest import eventually, raising
from tests.scratch_storage import ScratchStorage

Handle = Callable[[list[Message]], Sequence[object]]


class Bench:
    def __init__(
        self, folder: Path, handle: Handle, stop_after: int, block_messages: int = 3, **settings: object
    ) -> None:
        self.storage = ScratchStorage(block_messages=block_messages)
        self.inbox = Inbox()
        self.owner = "an-id/sinker-0"
        self.folder = folder
        self.calls: list[list[int]] = []
        self.stop = StopRequest()
        self._handle = handle
        self._stop_after = stop_after
        self._settings = settings

    def run(self) -> None:
        given = {"batch_size": 3, "max_tries": 2, "retry_backoff_seconds": 0.0, "ordered": False} | self._settings
        settings = SinkerSettings(
            name="sinker-0", run_dir=self.folder, scratch_dir=self.folder, import_dir=self.folder, log_level="info",
            handler="h:h", batch_wait_seconds=0.0, lease_seconds=60.0, handler_timeout_seconds=60.0, storage={},
            owner=self.owner, **given,  # type: ignore[arg-type]
        )  # fmt: skip
        guard = Watchdog(self.storage, 60.0, 60.0, lambda _: None, lambda _: None)
        handler = Handler("h:h", self._called, 60.0)
        stats = SinkerProcessStats("sinker-0", AgentServer(self.folder, "sinker-0"), self.storage, self.inbox)
        self.snapshot = stats._snapshot
        handler.open()
        try:
            self.sinker = Sinker(settings, self.storage, handler, stats, self.stop, guard, self.inbox)
            self.sinker.run()
        finally:
            handler.close()
            self.stop.close()

    def _called(self, messages: list[Message]) -> Sequence[object]:
        self.calls.append([message.offset for message in messages])
        if len(self.calls) >= self._stop_after:
            self.stop.ask()
        return self._handle(messages)


@pytest.fixture(autouse=True)
def retried_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outages, "RETRY_SECONDS", (0.0,))


def well(messages: list[Message]) -> list[bool]:
    return [True] * len(messages)


def fails(monkeypatch: pytest.MonkeyPatch, storage: ScratchStorage, name: str, times: int) -> None:
    real, failures = getattr(storage, name), [StorageUnusable("no room")] * times

    def failing(*args: object, **kwargs: object) -> object:
        if failures:
            raise failures.pop()
        return real(*args, **kwargs)

    monkeypatch.setattr(storage, name, failing)


def test_a_sinker_that_dies_leaves_no_dead_letter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = Bench(tmp_path, lambda messages: [f"no {message.offset}" for message in messages], stop_after=9, max_tries=1)
    fill(own.storage, 3)
    monkeypatch.setattr(own.storage, "settle", raising(SystemExit()))

    with pytest.raises(SystemExit):
        own.run()

    assert own.storage.stats().dead == 0


@pytest.mark.parametrize("is_stopped", [False, True], ids=["until there is room", "until a stop"])
def test_a_full_disk_counts_no_try(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_stopped: bool) -> None:
    own = Bench(tmp_path, lambda messages: [len(messages) == 1] * len(messages), stop_after=4)
    fill(own.storage, 3)
    monkeypatch.setattr(stats, "GRACE_SECONDS", 0.1)
    waited: list[str | None] = []

    def wait(seconds: float) -> bool:
        if own.snapshot().worker.last_error is not None:
            waited.append(own.snapshot().worker.last_error)
            monkeypatch.undo()
            if is_stopped:
                own.stop.ask()
        return own.stop.is_asked

    monkeypatch.setattr(os, "posix_fallocate", raising(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))))
    monkeypatch.setattr(own.stop, "wait", wait)
    own.run()

    (why,) = waited
    assert f"No space left on device: '{own.folder}/in-flight'" in str(why)
    assert own.calls == [[0, 1, 2]] if is_stopped else [[0, 1, 2], [0], [1], [2]]
    assert [claim.tries for claim in own.storage.claim("another", 100, 60.0)] == [1] * is_stopped
    assert list(own.storage.dead()) == []


@pytest.mark.parametrize("tries", [0, 1])
def test_lost_claims_are_not_handled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tries: int) -> None:
    def stands_still(messages: list[Message]) -> list[bool]:
        own.storage.release(own.owner)
        own.storage.claim("another", 6, 60.0)
        return well(messages)

    monkeypatch.setattr(Watchdog, "renew_seconds", 0.0)
    own = Bench(tmp_path, stands_still, stop_after=2, batch_size=4)
    monkeypatch.setattr(own.stop, "wait", lambda _: own.stop.ask())
    fill(own.storage, 6)
    for _ in range(tries):
        own.storage.claim("died", 6, 60.0)
        own.storage.release("died", count_try=True)
    own.run()

    assert own.calls == ([[0]] if tries else [[0, 1, 2, 3]])


def test_after_ten_in_a_row_that_fail_alone_the_rest_of_the_block_waits(tmp_path: Path) -> None:
    fails = raising(ValueError("the database is away"))
    own = Bench(tmp_path, fails, stop_after=12, block_messages=20, batch_size=20, max_tries=5)
    fill(own.storage, 20)
    own.run()

    assert own.calls == [list(range(20)), *([offset] for offset in range(10)), [0]]
    assert list(own.storage.dead()) == []


def test_a_paused_sinker_claims_nothing(tmp_path: Path) -> None:
    own = Bench(tmp_path, well, stop_after=1)
    fill(own.storage, 3)
    own.inbox.pause([Scope(None, None, "somebody", 0.0)])
    thread = threading.Thread(target=own.run)
    thread.start()
    eventually(lambda: hasattr(own, "snapshot") and own.snapshot().worker.state == "paused")
    assert own.calls == []
    assert total(own.storage) == (3, 0, 0, 0)

    own.inbox.pause([])
    thread.join()

    assert own.calls == [[0, 1, 2]]


def test_failed_claims_and_settles_are_retried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = Bench(tmp_path, well, stop_after=2)
    fill(own.storage, 6)
    for name in ("claim", "settle"):
        fails(monkeypatch, own.storage, name, times=2)
    own.run()

    assert own.calls == [[0, 1, 2], [3, 4, 5]]
    assert total(own.storage) == (0, 0, 0, 0)
    assert (found := own.snapshot().worker.sinker) is not None
    assert found.handled == 6


def test_a_sinker_is_busy_from_its_first_call_until_all_is_settled(tmp_path: Path) -> None:
    at: list[float] = []

    def timed(messages: list[Message]) -> list[bool]:
        at.append(time.monotonic())
        return well(messages)

    own = Bench(tmp_path, timed, stop_after=3, batch_size=1)
    fill(own.storage, 3)
    own.run()

    assert (own.snapshot().worker.batch_seconds_total or 0.0) >= at[-1] - at[0] > 0.0


def test_a_handler_that_only_fails_is_reported_until_it_has_handled_a_message(tmp_path: Path) -> None:
    failing: list[bool] = []

    def is_failing() -> bool:
        stats = own.snapshot().worker.sinker
        return stats is not None and stats.failing_seconds is not None

    def handle(messages: list[Message]) -> list[bool]:
        failing.append(is_failing())
        return [len(failing) > 20] * len(messages)

    own = Bench(tmp_path, handle, stop_after=21, max_tries=100)
    fill(own.storage, 3)
    own.run()

    assert not failing[0]
    assert failing[-1]
    assert not is_failing()


def test_an_outage_of_the_registry_is_no_try(tmp_path: Path) -> None:
    def decoding(messages: list[Message]) -> list[object]:
        if len(own.calls) > 2:
            return [True] * len(messages)
        error = RegistryUnusable("the schema registry at http://r does not answer")
        if len(own.calls) == 1:
            raise error
        return [error, True, True]

    own = Bench(tmp_path, decoding, stop_after=3, max_tries=1)
    fill(own.storage, 3)
    own.run()

    assert own.calls == [[0, 1, 2]] * 3
    assert total(own.storage) == (0, 0, 0, 0)


def test_a_value_that_cannot_be_decoded_is_a_dead_letter_at_once(tmp_path: Path) -> None:
    def decoding(messages: list[Message]) -> list[object]:
        error = Undecodable("BadRecord: not shop.Order (id 7)")
        if (len(messages) > 1 and len(own.calls) > 1) or [each.offset for each in messages] == [4]:
            raise error
        return [error if message.offset == 1 else True for message in messages]

    own = Bench(tmp_path, decoding, stop_after=5, max_tries=9)
    fill(own.storage, 6)
    own.run()

    assert own.calls == [[0, 1, 2], [3, 4, 5], [3], [4], [5]]
    dead = {each.offset: (each.tries, each.error) for each in own.storage.dead()}
    assert dead == {1: (1, "BadRecord: not shop.Order (id 7)"), 4: (2, "BadRecord: not shop.Order (id 7)")}
    assert total(own.storage)[:3] == (0, 0, 0)


LEASE_SECONDS = 0.3
LONG = 60.0


class NotingStorage(ScratchStorage):
    def __init__(self) -> None:
        super().__init__(block_messages=3)
        self.renewed: list[str] = []

    def renew(self, claim: Claim, lease_seconds: float) -> bool:
        self.renewed.append(claim.id)
        return super().renew(claim, lease_seconds)


class Watched:
    def __init__(self, timeout_seconds: float) -> None:
        self.storage = NotingStorage()
        self.lost: list[InFlightClaim] = []
        self.timed_out: list[Sequence[Part]] = []
        self.guard = Watchdog(self.storage, LEASE_SECONDS, timeout_seconds, self.lost.append, self.timed_out.append)
        fill(self.storage, 6)

    def claimed(self) -> InFlightClaim:
        (claim,) = self.storage.claim("a", 3, LONG)
        return InFlightClaim.of(claim)


@pytest.fixture
def watched(request: pytest.FixtureRequest) -> Iterator[Watched]:
    made = Watched(getattr(request, "param", LONG))
    yield made
    made.guard.close()


def test_a_lease_is_renewed_as_long_as_its_claim_is_in_flight(watched: Watched) -> None:
    kept, dropped = watched.claimed(), watched.claimed()
    watched.guard.hold(kept)
    watched.guard.hold(dropped)
    watched.guard.start()
    eventually(lambda: set(watched.storage.renewed) == {kept.claim.id, dropped.claim.id})

    watched.guard.drop(dropped)
    watched.storage.renewed.clear()
    eventually(lambda: len(watched.storage.renewed) > 2)

    assert set(watched.storage.renewed) == {kept.claim.id}
    assert (watched.lost, watched.timed_out) == ([], [])


def test_a_lost_lease_is_reported_once_and_not_renewed_again(watched: Watched) -> None:
    first, second = watched.claimed(), watched.claimed()
    watched.storage.release("a")
    for each in (first, second):
        watched.guard.hold(each)
    watched.storage.claim("a", 3, LONG)  # the same block, under another lease
    watched.guard.start()
    eventually(lambda: len(watched.lost) == 2)

    assert {each.claim.id for each in watched.lost} == {first.claim.id, second.claim.id}
    assert all(each.is_lost for each in (first, second))
    watched.storage.renewed.clear()
    (other,) = watched.storage.claim("b", 3, LONG)
    watched.guard.hold(InFlightClaim.of(other))
    eventually(lambda: len(watched.storage.renewed) > 2)
    assert set(watched.storage.renewed) == {other.id}
    assert len(watched.lost) == 2


def test_renewals_are_retried(
    watched: Watched, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    claimed = watched.claimed()
    fails(monkeypatch, watched.storage, "renew", times=2)
    watched.guard.hold(claimed)
    with caplog.at_level(logging.WARNING):
        watched.guard.start()
        eventually(lambda: watched.storage.renewed)

    assert caplog.messages == ["a lease could not be renewed: no room"] * 2
    assert not claimed.is_lost


@pytest.mark.parametrize("watched", [0.05], indirect=True)
def test_a_call_that_had_its_time_is_reported_and_never_comes_back(watched: Watched) -> None:
    call = [Part(watched.claimed(), 0, 3)]
    returned, may_return = threading.Event(), threading.Event()

    def handle() -> None:
        with watched.guard.calling(call):
            may_return.wait()
        returned.set()

    thread = threading.Thread(target=handle)
    thread.start()
    watched.guard.start()
    eventually(lambda: watched.timed_out == [call])
    may_return.set()

    assert not returned.wait(0.2), "the guard is ending the process"
    watched.guard.close()  # only here, to end the thread; in a sinker the process has ended
    thread.join()
    assert watched.timed_out == [call]
