"""What the watcher of checkpoints adds to a poll, and what it reports of a query to the rules."""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace
from pathlib import Path

from kctl.checkpoints.watcher import CheckpointWatcher
from kctl.config.clusters import CheckpointSection
from kctl.kafka.polls.cluster_reading import ClusterReading
from kctl.rows.columns import ABSENT
from tests.checkpoint_faults import NEXT_OFFSETS, RECORDED, copied


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
    """Writes the plan of a batch, with the time of the driver."""
    lines = (job / "offsets" / "2").read_text().splitlines()
    metadata = json.loads(lines[1]) | {"batchTimestampMs": int(at * 1000)}
    (job / "offsets" / str(number)).write_text("\n".join([lines[0], json.dumps(metadata), *lines[2:]]))


def running_seconds(watcher: CheckpointWatcher) -> float:
    owner = watcher.owner("job")
    assert owner is not None
    assert owner.batch_running_seconds is not None
    return owner.batch_running_seconds


def test_a_batch_runs_no_longer_than_until_the_checkpoint_was_read(tmp_path: Path) -> None:
    job = copied(RECORDED / "4.2.0" / "plain", tmp_path / "job")
    plan(job, 3, time.time() - 804)
    watcher = read_once(job, interval_seconds=900.0)
    seen = watcher._seen["job"]

    watcher._seen["job"] = replace(seen, at_unix=seen.at_unix - 800)

    assert 4 <= running_seconds(watcher) < 60


def test_a_driver_whose_clock_is_slow_does_not_make_a_batch_long(tmp_path: Path) -> None:
    job = copied(RECORDED / "4.2.0" / "plain", tmp_path / "job")
    watcher = read_once(job)
    plan(job, 3, time.time() - 3600)

    watcher._read("job", str(job))

    assert running_seconds(watcher) < 60


def test_partitions_that_were_added_are_part_of_the_group(tmp_path: Path) -> None:
    watcher = read_once(copied(RECORDED / "4.2.0" / "plain", tmp_path / "job"))
    poll(watcher, partitions={"orders": 4, "other": 3})

    found = poll(watcher).committed["job"]

    assert dict(found.items()) == {
        **{("orders", number): NEXT_OFFSETS for number in (0, 1)},
        **{("orders", number): ABSENT for number in (2, 3)},
    }


def test_a_partition_below_those_that_a_query_reads_is_none_of_its_own(tmp_path: Path) -> None:
    job = copied(RECORDED / "4.2.0" / "plain", tmp_path / "job")
    entry = job / "offsets" / "2"
    entry.write_text(re.sub(r'"0":18,', "", entry.read_text()))
    watcher = read_once(job)
    poll(watcher, partitions={"orders": 2})

    assert dict(poll(watcher).committed["job"].items()) == {("orders", 1): NEXT_OFFSETS}


def test_topics_that_the_section_does_not_name_are_elsewhere(tmp_path: Path) -> None:
    watcher = read_once(copied(RECORDED / "4.2.0" / "two_sources", tmp_path / "job"), topics=("orders",))

    found = poll(watcher)

    assert [topic for topic, _ in found.committed["job"].topics] == ["orders"]
    assert [topic for topic, _ in found.elsewhere["job"].topics] == ["payments"]
    assert str(watcher.error("job")).endswith("`topics` does not name payments")


def test_a_topic_that_is_gone_is_why_lag_is_unknown(tmp_path: Path) -> None:
    watcher = read_once(copied(RECORDED / "4.2.0" / "two_sources", tmp_path / "job"))
    poll(watcher, unknown={("payments", 0), ("payments", 1)})

    assert str(watcher.error("job")).endswith("there is no payments-0 in this cluster")
