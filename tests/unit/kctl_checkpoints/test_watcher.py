from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from kctl.checkpoints.checkpoint import store_of
from kctl.checkpoints.watcher import CheckpointWatcher
from kctl.config.clusters import CheckpointSection
from kctl.kafka.polls.cluster_reading import ClusterReading
from kctl.rows.columns import ABSENT
from tests.checkpoint_faults import NEXT_OFFSETS, RECORDED, copied
from tests.conftest import eventually


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    return copied(RECORDED / "4.2.0" / "plain", tmp_path / "job")


def poll(watcher: CheckpointWatcher, **answers: object) -> ClusterReading:
    reading = ClusterReading()
    watcher.add_to(reading)
    for name, value in answers.items():
        setattr(reading, name, value)
    return reading


def read_once(job: Path, **section: object) -> CheckpointWatcher:
    watcher = CheckpointWatcher({"job": CheckpointSection(uri=str(job), **section)})  # type: ignore[arg-type]
    watcher._read("job", str(job))
    return watcher


def plan(job: Path, number: int, at: float) -> None:
    lines = (job / "offsets" / "2").read_text().splitlines()
    metadata = json.loads(lines[1]) | {"batchTimestampMs": int(at * 1000)}
    (job / "offsets" / str(number)).write_text("\n".join([lines[0], json.dumps(metadata), *lines[2:]]))


def running_seconds(watcher: CheckpointWatcher) -> float:
    owner = watcher.owner("job")
    assert owner is not None
    assert owner.batch_running_seconds is not None
    return owner.batch_running_seconds


def test_a_batch_runs_until_the_checkpoint_was_read_and_a_slow_clock_makes_none_long(plain: Path) -> None:
    plan(plain, 3, time.time() - 804)
    watcher = read_once(plain, interval_seconds=900.0)
    seen = watcher._seen["job"]

    watcher._seen["job"] = replace(seen, at_unix=seen.at_unix - 800)

    assert 4 <= running_seconds(watcher) < 60

    watcher = read_once(plain)
    plan(plain, 4, time.time() - 3600)
    watcher._read("job", str(plain))
    assert running_seconds(watcher) < 60


def test_partitions_that_were_added_are_part_of_the_group_and_those_below_are_not(plain: Path) -> None:
    watcher = read_once(plain)
    poll(watcher, partitions={"orders": 4, "other": 3})

    found = poll(watcher).committed["job"]

    assert dict(found.items()) == {
        **{("orders", number): NEXT_OFFSETS for number in (0, 1)},
        **{("orders", number): ABSENT for number in (2, 3)},
    }

    entry = plain / "offsets" / "2"
    entry.write_text(re.sub(r'"0":18,', "", entry.read_text()))
    watcher = read_once(plain)
    poll(watcher, partitions={"orders": 2})

    assert dict(poll(watcher).committed["job"].items()) == {("orders", 1): NEXT_OFFSETS}


def test_topics_that_the_section_does_not_name_are_elsewhere_and_one_that_is_gone_is_named(tmp_path: Path) -> None:
    watcher = read_once(copied(RECORDED / "4.2.0" / "two_sources", tmp_path / "job"), topics=("orders",))

    found = poll(watcher)

    assert [topic for topic, _ in found.committed["job"].topics] == ["orders"]
    assert [topic for topic, _ in found.elsewhere["job"].topics] == ["payments"]
    assert str(watcher.error("job")).endswith("`topics` does not name payments")

    watcher = read_once(tmp_path / "job")
    poll(watcher, unknown={("payments", 0), ("payments", 1)})
    assert str(watcher.error("job")).endswith("there is no payments-0 in this cluster")


def threads() -> int:
    return sum(each.name == "kctl-checkpoints" for each in threading.enumerate())


def watcher_of(jobs: Iterable[Path]) -> CheckpointWatcher:
    return CheckpointWatcher({each.name: CheckpointSection(uri=str(each), interval_seconds=1.0) for each in jobs})


def test_five_hundred_folders_of_one_mount_take_a_few_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    monkeypatch.setattr(CheckpointWatcher, "_read", lambda _, group, uri: read.append(uri))
    jobs = {str(number): CheckpointSection(uri=f"/srv/jobs/{number}/checkpoint") for number in range(500)}
    watcher = CheckpointWatcher(jobs)

    watcher.start()

    assert threads() <= 4
    eventually(lambda: len(read) == 500)
    watcher.close()
    eventually(lambda: not threads())
    assert len(set(read)) == 500


@pytest.mark.shows("a checkpoint whose store hangs delays no other checkpoint")
def test_a_store_that_hangs_delays_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kctl.checkpoints.watcher.store_of", lambda uri: Path(uri).parent.name)
    answers = threading.Event()
    whole_read = CheckpointWatcher._read

    def read(self: CheckpointWatcher, group: str, uri: str) -> None:
        if "hung" in uri:
            answers.wait()
        whole_read(self, group, uri)

    monkeypatch.setattr(CheckpointWatcher, "_read", read)
    hung = [copied(RECORDED / "4.2.0" / "plain", tmp_path / "hung" / str(number)) for number in range(6)]
    well = copied(RECORDED / "4.2.0" / "plain", tmp_path / "disk" / "well")
    watcher = watcher_of(hung)
    watcher.start()
    eventually(lambda: threads() == 4)

    for _ in range(3):
        watcher, old = watcher_of([*hung, well]), watcher
        watcher.take_over(old)
        old.close()
        watcher.start()

    eventually(lambda: "well" in poll(watcher).committed)
    assert threads() == 5
    answers.set()
    eventually(lambda: len(poll(watcher).committed) == 7)
    watcher.close()
    eventually(lambda: not threads())


@pytest.mark.parametrize(
    ("uri", "store"),
    [("s3://lake/jobs/orders", "lake"), ("/proc/1/x", "/proc"), ("file:///proc/1", "/proc"), ("/proc", "/proc")],
)
def test_a_checkpoint_belongs_to_its_bucket_or_mount(uri: str, store: str) -> None:
    assert store_of(uri) == store
