import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka.errors import KafkaConfigurationError, KafkaTimeoutError

from kctl_agent.process import outages
from kctl_agent.process.outages import Stopped, disk_error, outage, until_it_works
from kctl_agent.process.stop import StopRequest
from kctl_agent.process.troubles import GRACE_SECONDS, Troubles
from kctl_agent.replies.workers import WaitingFor
from kctl_agent.storage.base import StorageMisconfigured, StorageUnusable
from tests.conftest import raising
from tests.unit.worker.main_thread.played_stats import PlayedStats


@pytest.fixture
def troubles() -> Troubles:
    return Troubles()


def test_an_outage_is_waited_for_at_once_and_an_error_when_it_has_lasted(troubles: Troubles) -> None:
    assert not troubles.met("poll", "refused", 100.0, 1e9, "brokers", GRACE_SECONDS)
    assert troubles.waiting_for() == WaitingFor("brokers", "refused", 1e9)
    assert troubles.error(100.0 + GRACE_SECONDS - 0.1) is None

    assert troubles.met("poll", "no answer", 100.0 + GRACE_SECONDS, 1e9 + 10, "brokers", GRACE_SECONDS)
    assert not troubles.met("poll", "no answer", 120.0, 1e9 + 20, "brokers", GRACE_SECONDS), "it is logged once"
    error = troubles.error(120.0)
    assert error == "waits for the brokers since 2001-09-09T01:46:40Z: no answer"

    assert troubles.over("poll")
    assert (troubles.waiting_for(), troubles.error(120.0)) == (None, None)
    assert not troubles.over("poll")


def test_what_heals_within_the_grace_period_is_no_error_and_another_trouble_has_a_new_start(troubles: Troubles) -> None:
    for at in (100.0, 100.0 + GRACE_SECONDS + 1):
        assert not troubles.met("commit", "no coordinator", at, 0.0, None, GRACE_SECONDS)
        assert troubles.error(at + GRACE_SECONDS - 0.1) is None
        troubles.over("commit")

    troubles.met("query", "read-only", 200.0, 1.0, "storage")
    troubles.met("query", "no number", 300.0, 2.0)
    assert troubles.waiting_for() is None
    troubles.met("query", "read-only", 400.0, 3.0, "storage")
    assert troubles.waiting_for() == WaitingFor("storage", "read-only", 3.0)


def test_of_several_the_outage_that_began_first_is_shown_and_then_what_is_no_outage(troubles: Troubles) -> None:
    troubles.met("query", "no number", 100.0, 0.0)
    troubles.met("poll", "refused", 101.0, 1.0, "brokers")
    troubles.met("storage", "loading", 102.0, 2.0, "storage")

    assert troubles.waiting_for() == WaitingFor("brokers", "refused", 1.0)
    assert troubles.outside(besides="poll") == "storage"
    troubles.over("poll")
    assert str(troubles.error(103.0)).startswith("waits for the storage")
    troubles.over("storage")
    assert troubles.error(103.0) == "no number"

    troubles.met("commit", "no coordinator", 104.0, 4.0, "brokers")
    troubles.met("engine", "its JVM died", 105.0, 5.0, "engine")
    assert troubles.waiting_for() == WaitingFor("engine", "its JVM died", 5.0), "the others follow from it"
    assert str(troubles.error(106.0)).startswith("waits for the engine since")


@pytest.mark.parametrize(
    ("error", "outside"),
    [
        (StorageUnusable("MISCONF"), "storage"),
        (StorageMisconfigured("no package"), None),
        (KafkaTimeoutError("bootstrap"), "brokers"),
        (KafkaConfigurationError("group_id"), None),
        (OSError(errno.ENOSPC, "No space left on device"), "disk"),
        (OSError(errno.EACCES, "Permission denied"), None),
        (ValueError("a bug"), None),
    ],
)
def test_an_error_is_an_outage_where_waiting_may_help(error: Exception, outside: str | None) -> None:
    assert outage(error) == outside


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    assert disk_error(tmp_path) is None
    assert disk_error(tmp_path / "gone") == f"{tmp_path / 'gone'} cannot be written: No such file or directory"


class PatientStop(StopRequest):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def wait(self, seconds: float) -> bool:
        self.now += seconds
        return self.is_asked


@pytest.fixture
def stop() -> Iterator[PatientStop]:
    made = PatientStop()
    yield made
    made.close()


@pytest.mark.parametrize(
    "error",
    [
        StorageUnusable("redis://localhost:6379/0 cannot be used: connection refused"),
        KafkaTimeoutError("Unable to bootstrap"),
        OSError(errno.ENOSPC, "No space left on device"),
    ],
    ids=["storage", "brokers", "disk"],
)
def test_half_an_hour_without_what_a_start_needs_is_waited_for(error: Exception, stop: PatientStop) -> None:
    stats: Any = PlayedStats()
    shown: set[object] = set()

    def step() -> str:
        shown.update(stats.troubles.values())
        if stop.now < 1800:
            raise error
        return "begun"

    assert until_it_works(step, stats, stop) == "begun"
    assert shown == {(str(error), outage(error))}
    assert stats.troubles == {}
    assert stop.now < 1800 + outages.RETRY_SECONDS[-1], "it goes on soon after the end"


def test_what_is_no_outage_ends_the_wait_and_so_does_a_stop(stop: PatientStop) -> None:
    stats: Any = PlayedStats()
    with pytest.raises(StorageMisconfigured):
        until_it_works(raising(StorageMisconfigured("no package")), stats, stop)
    stop.ask()
    with pytest.raises(Stopped):
        until_it_works(raising(StorageUnusable("refused")), stats, stop)
