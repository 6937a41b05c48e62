"""Checkpoints written by Spark 3.4 to 4.2, intact and damaged."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kctl.checkpoints.checkpoint import Checkpoint, place, read
from kctl.checkpoints.entries import BadEntry, initial, is_commit, merged, planned, query_id, starting_offsets
from kctl.errors import CheckpointUnreadable
from tests.checkpoint_faults import FAULTS, NEXT_OFFSETS, RECORDED, STATE_FAULTS, Fault, copied

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
    with pytest.raises(CheckpointUnreadable, match="is not a checkpoint"):
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
    for parse, entry in ((planned, ENTRY.removeprefix("v1")), (is_commit, '\n{"nextBatchWatermarkMs":0}')):
        with pytest.raises(BadEntry, match="which kctl does not know"):
            parse(version + entry)


def test_metadata_without_a_query_id_is_not_read() -> None:
    for text in ("", "{", '{"id":5}', "[]", '{"id":"orders"}'):
        with pytest.raises(BadEntry):
            query_id(text)


@pytest.mark.parametrize(
    "source", ["-", "5", '{"logOffset":3}', '{"sourceVersion":1,"reservoirId":"a"}', "{}", '{"orders":{"0":"a"}}']
)
def test_a_source_that_is_not_kafka_has_no_offsets(source: str) -> None:
    assert planned(f"v1\n{{}}\n{source}").sources == (None,)
