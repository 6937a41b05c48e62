"""Checkpoints written by Spark 3.4 to 4.2, intact and damaged."""

import json
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kctl.checkpoints.checkpoint import Checkpoint, place, read, store_of
from kctl.checkpoints.entries import BadEntry, commit, initial, merged, planned, query_id, starting_offsets
from kctl.checkpoints.watcher import CheckpointWatcher
from kctl.config.clusters import CheckpointSection
from kctl.errors import CheckpointUnreadable
from kctl.kafka.polls.cluster_reading import ClusterReading
from kctl.rows.columns import ABSENT
from tests.checkpoint_faults import FAULTS, NEXT_OFFSETS, RECORDED, STATE_FAULTS, Fault, copied
from tests.conftest import eventually

VERSIONS = sorted(each.name for each in RECORDED.iterdir() if each.is_dir())


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    return copied(RECORDED / "4.2.0" / "plain", tmp_path / "checkpoint")


def read_at(path: Path) -> Checkpoint:
    return read(place(str(path)))


@pytest.mark.parametrize("version", VERSIONS)
def test_the_next_offsets_of_a_query_are_those_of_its_newest_committed_batch(version: str) -> None:
    found, of_two = (read_at(RECORDED / version / name) for name in ("plain", "two_sources"))
    with_gaps = read_at(RECORDED / version / "asynchronous")

    assert found.offsets == {("orders", 0): NEXT_OFFSETS, ("orders", 1): NEXT_OFFSETS}
    assert (found.planned, found.committed, found.repeated) == (2, 2, None)
    assert found.conf["spark.sql.shuffle.partitions"] == "2"
    assert found.would_start is True
    assert [{topic for topic, _ in each or ()} for each in of_two.sources] == [{"orders"}, {"payments"}]
    assert of_two.offsets[("payments", 1)] == NEXT_OFFSETS
    assert with_gaps.committed == with_gaps.planned
    assert with_gaps.would_start is not False, "the gaps of asynchronous progress tracking are not a fault"


@pytest.mark.parametrize(
    ("missing", "processed", "repeated"),
    [
        (("commits/2",), 15, 18),
        (("offsets/1", "offsets/2", "commits/0", "commits/1", "commits/2"), 0, 10),  # the query began at 0
    ],
)
def test_a_planned_batch_is_not_processed(missing: tuple[str, ...], processed: int, repeated: int, plain: Path) -> None:
    for name in missing:
        (plain / name).unlink()

    found = read_at(plain)

    assert set(found.offsets.values()) == {processed}
    assert found.repeated == {("orders", 0): repeated, ("orders", 1): repeated}


def check(fault: Fault, folder: Path) -> Checkpoint:
    fault.make(folder)
    found = read_at(folder)
    assert found.would_start is fault.starts, found.findings
    assert fault.words in "\n".join(each.text for each in found.findings)
    return found


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.shows("`kctl checkpoint show` reports damage of checkpoints of Spark 3.4 to 4.2")
def test_a_damaged_checkpoint_is_named(name: str, version: str, tmp_path: Path) -> None:
    found = check(FAULTS[name], copied(RECORDED / version / "plain", tmp_path / "checkpoint"))

    assert max(found.offsets.values(), default=0) <= NEXT_OFFSETS


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", STATE_FAULTS)
def test_a_damaged_state_is_named(name: str, version: str, tmp_path: Path) -> None:
    check(STATE_FAULTS[name], copied(RECORDED / version / "stateful", tmp_path / "checkpoint"))


@pytest.mark.parametrize(
    "name", ["offsets of an unknown version", "a commit of an unknown version", "the newest offsets are empty"]
)
def test_what_cannot_be_read_leaves_the_offsets_unknown(name: str, plain: Path) -> None:
    assert check(FAULTS[name], plain).offsets == {}


def test_commits_with_state_ids_and_the_state_of_rocksdb_are_read(tmp_path: Path) -> None:
    folder = copied(RECORDED / "4.2.0" / "rocksdb", tmp_path / "checkpoint")
    assert (folder / "commits/5").read_text().startswith("v2\n")
    whole = read_at(folder)
    [newest_state] = folder.glob("state/0/1/6_*.changelog")
    newest_state.unlink()

    damaged = read_at(folder)

    assert (whole.would_start, damaged.would_start) == (True, False)
    assert set(whole.offsets.values()) == {21}


def test_reading_a_checkpoint_changes_nothing_in_it(tmp_path: Path) -> None:
    folder = copied(RECORDED / "4.2.0" / "stateful", tmp_path / "checkpoint")
    before = {path: (path.stat().st_mtime_ns, path.stat().st_ino) for path in sorted(folder.rglob("*"))}

    read_at(folder)

    assert {path: (path.stat().st_mtime_ns, path.stat().st_ino) for path in sorted(folder.rglob("*"))} == before


def test_a_checkpoint_that_is_missing_or_may_not_be_read_is_named(plain: Path) -> None:
    with pytest.raises(CheckpointUnreadable, match="is missing, or is not a checkpoint"):
        read_at(plain.parent)
    (plain / "commits").chmod(0)
    user = os.geteuid()
    os.seteuid(user or 65534)  # root may read everything
    try:
        with pytest.raises(CheckpointUnreadable, match=r"commits cannot be read: Permission denied"):
            read_at(plain)
    finally:
        os.seteuid(user)


def test_files_are_read_again_after_a_batch_when_made_again_and_while_something_is_wrong(plain: Path) -> None:
    whole = (plain / "offsets" / "2").read_text()
    (plain / "offsets" / "2").write_text("")
    bad = read(place(str(plain)), with_state=False)
    (plain / "offsets" / "2").write_text(whole)

    good = read(place(str(plain)), with_state=False, last=bad)

    assert (bad.offsets, set(good.offsets.values())) == ({}, {NEXT_OFFSETS})
    assert read(place(str(plain)), with_state=False, last=good) is good
    (plain / "commits" / "2").unlink()
    assert read(place(str(plain)), with_state=False, last=good).committed == 1

    shutil.rmtree(plain)
    copied(RECORDED / "4.2.0" / "plain", plain)
    for file in plain.glob("offsets/[0-9]*"):
        file.write_text(re.sub(r'"([01])":\d+', rf'"\1":{file.name}', file.read_text()))

    new = read(place(str(plain)), with_state=False, last=good)
    assert set(new.offsets.values()) == {2}, "though its batch numbers are the same"


@pytest.mark.parametrize("removed", [(), ("offsets/1", "commits/1"), ("sources",)], ids=str)
def test_the_offsets_of_one_of_two_sources_are_not_taken_for_all(removed: tuple[str, ...], tmp_path: Path) -> None:
    folder = copied(RECORDED / "4.2.0" / "two_sources", tmp_path / "checkpoint")
    newest = folder / "offsets" / "2"
    newest.write_text(newest.read_text().rstrip("\n").rpartition("\n")[0])
    for name in removed:
        shutil.rmtree(folder / name) if (folder / name).is_dir() else (folder / name).unlink()

    found = read_at(folder)

    assert found.offsets == {}
    assert found.would_start is False
    assert any("offsets/2 has 1 source" in each.text for each in found.findings)


ENTRY = 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1795707263135,"conf":{"a":"b"}}\n{"orders":{"0":18,"1":17}}'
OFFSETS = {("orders", 0): 18, ("orders", 1): 17}


def test_an_entry_has_the_next_offset_of_each_partition_and_of_two_sources_the_lower() -> None:
    found = planned(ENTRY)

    assert found.sources == (OFFSETS,)
    assert found.planned_at == 1795707263.135
    assert found.conf == {"a": "b"}
    assert merged([OFFSETS, None, {("orders", 0): 5, ("payments", 0): 1}]) == OFFSETS | {
        ("orders", 0): 5,
        ("payments", 0): 1,
    }
    assert initial('\0v1\n{"orders":{"0":18,"1":17}}') == OFFSETS
    assert starting_offsets(OFFSETS) == '{"orders":{"0":18,"1":17}}'


@given(st.integers(0, len(ENTRY) - 1))
def test_an_entry_that_is_cut_anywhere_is_never_taken_for_a_whole_one(at: int) -> None:
    with pytest.raises(BadEntry):
        planned(ENTRY[:at])


@pytest.mark.parametrize("version", ["v0", "v3", "v10", "V1", "1", "v", "v1 v1"])
def test_an_entry_of_an_unknown_version_is_not_read(version: str) -> None:
    for parse, entry in ((planned, ENTRY.removeprefix("v1")), (commit, '\n{"nextBatchWatermarkMs":0}')):
        with pytest.raises(BadEntry, match="that kctl does not know"):
            parse(version + entry)


def test_metadata_without_a_query_id_is_not_read() -> None:
    for text in ("", "{", '{"id":5}', "[]", '{"id":"orders"}', "[" * 100_000):
        with pytest.raises(BadEntry):
            query_id(text)


@pytest.mark.parametrize(
    "source",
    [
        "-",
        "5",
        '{"logOffset":3}',
        '{"sourceVersion":1,"reservoirId":"a"}',
        "{}",
        '{"orders":{"0":"a"}}',
        '{"orders":{"0":-1}}',
        f'{{"orders":{{"0":{1 << 63}}}}}',
        f'{{"orders":{{"{1 << 31}":0}}}}',
        f'{{"orders":{{"{"1" * 5000}":0}}}}',
        r'{"\ud800":{"0":0}}',
        f'{{"{"a" * 250}":{{"0":0}}}}',
    ],
)
def test_a_source_that_is_not_kafka_has_no_offsets(source: str) -> None:
    assert planned(f"v1\n{{}}\n{source}").sources == (None,)


@pytest.mark.parametrize(
    ("metadata", "planned_at", "watermark_ms"),
    [
        ('{"batchTimestampMs":"a","batchWatermarkMs":"a"}', None, 0),
        (f'{{"batchTimestampMs":1{"0" * 400},"batchWatermarkMs":253402300800000}}', None, 0),
        ('{"batchTimestampMs":253402300799999,"batchWatermarkMs":1}', 253402300799.999, 1),
    ],
)
def test_a_time_that_no_calendar_has_is_unknown(metadata: str, planned_at: float | None, watermark_ms: int) -> None:
    found = planned(f"v1\n{metadata}\n-")

    assert (found.planned_at, found.watermark_ms) == (planned_at, watermark_ms)


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


def linked(entry: Path) -> None:
    secret = entry.parents[2] / "secret"
    secret.write_text("hunter2")
    entry.symlink_to(secret)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (linked, "it is a symbolic link"),
        (os.mkfifo, "it is not a regular file"),
        (lambda entry: entry.write_bytes(bytes((4 << 20) + 1)), "it is larger than 4 MiB"),
        (lambda entry: entry.write_text("hunter2"), "has a version that kctl does not know"),
    ],
    ids=["link", "FIFO", "size", "version"],
)
def test_an_entry_that_spark_has_not_written_is_neither_read_nor_shown(
    make: Callable[[Path], object], why: str, plain: Path
) -> None:
    (plain / "offsets" / "2").unlink()
    make(plain / "offsets" / "2")

    assert re.fullmatch(rf"{plain}.*offsets/2 .*{why}", str(read_once(plain).error("job")))


def test_a_checkpoint_may_be_reached_by_a_link(plain: Path) -> None:
    (plain.parent / "link").symlink_to(plain)

    assert read_at(plain.parent / "link").offsets


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
    eventually(lambda: threads() == 4)  # however many folders a mount has

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
