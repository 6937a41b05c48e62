"""When checkpoints of a table's log are written, and by which process."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from kctl_agent.storage.chunk import Advance, Binding, StoredOffset
from kctl_agent.storage.lake.delta import checkpoint, table
from kctl_agent.storage.lake.delta.log import log_files, write_entry
from kctl_agent.storage.lake.storage import LakeStorage
from kctl_agent.storage.sync import sync_file
from tests.unit.storage.lake.test_storage import TOPIC_ID, TP, begun, opened

DAY = 86_400.0


def configured(path: Path, **properties: str) -> LakeStorage:
    made = opened(path)
    DeltaTable(path).alter.set_table_properties({f"delta.{name}": value for name, value in properties.items()})
    made.init_offsets([StoredOffset(*TP, TOPIC_ID, 0)])
    return made


@pytest.mark.shows("stored offsets survive checkpoint, clean-up of the log, compaction and vacuum")
def test_a_checkpoint_that_is_due_is_written_though_others_have_committed_meanwhile(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = configured(path, checkpointInterval="4")
    other = opened(path, Binding("other", "cluster-1"))
    other.init_offsets([StoredOffset(*TP, TOPIC_ID, 0)])
    waiting = [other]

    def followed(*args: Any) -> bytes | None:
        written = write_entry(*args)
        if waiting:
            waiting.pop().advance_offsets([Advance(*TP, 1, 0, 5)])
        return written

    monkeypatch.setattr(table, "write_entry", followed)

    begun(storage, 0, 10).commit()
    storage.table.checkpoints.wait()

    assert DeltaTable(path).version() == 5
    assert log_files(storage.folder).checkpoint == 5, "of the newest, when version 4 was committed"


@pytest.mark.parametrize(("cleans_up", "is_kept"), [("FALSE", True), ("true", False)])
def test_the_log_is_cleaned_up_after_a_week_unless_the_table_forbids_it_in_whatever_case(
    path: Path, cleans_up: str, is_kept: bool
) -> None:
    storage = configured(path, enableExpiredLogCleanup=cleans_up)
    begun(storage, 0, 10).commit()
    checkpoint.main(str(path), None)
    begun(storage, 10, 20).commit()
    for entry in (path / "_delta_log").iterdir():
        os.utime(entry, (time.time() - 8 * DAY,) * 2)

    checkpoint.main(str(path), None)

    assert (path / "_delta_log" / f"{0:020}.json").exists() == is_kept


def test_a_checkpoint_has_its_name_once_it_is_on_the_disk_and_the_pointer_to_it_comes_last(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut in between leaves the log with the checkpoint of before."""
    storage = configured(path)
    left = path / "_kctl" / "checkpoint-of-one-that-was-killed"
    left.mkdir(parents=True)
    os.utime(left, (1, 1))
    log, steps = path / "_delta_log", []

    def synced(file: Path) -> None:
        steps.append(f"sync {file.name if file != log else 'log'}")
        sync_file(file)

    def named(file: Path, to: Path) -> None:
        assert not to.exists()
        steps.append(f"name {to.name}")
        file.rename(to)

    monkeypatch.setattr(checkpoint, "sync_file", synced)
    monkeypatch.setattr(os, "replace", named)

    checkpoint.main(str(path), None)

    written, pointer = f"{2:020}.checkpoint.parquet", "_last_checkpoint"
    assert steps == [f"sync {written}", f"name {written}", "sync log", f"sync {pointer}", f"name {pointer}", "sync log"]
    assert not list((path / "_kctl").glob("checkpoint-*"))
    assert log_files(storage.folder).checkpoint == DeltaTable(path).version() == 2


def test_one_whose_process_was_killed_is_a_warning_with_the_signal(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Where memory is short it is the first."""
    storage = configured(path, checkpointInterval="1")
    storage.table.checkpoints.wait()
    stands_in = tmp_path / "python"
    stands_in.write_text("#!/bin/sh\necho a warning of Python >&2\nkill -9 $$\n")
    stands_in.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(stands_in))

    begun(storage, 0, 10).commit()
    storage.table.checkpoints.wait()

    assert f"no checkpoint of the log of {path} was written: its process was killed by SIGKILL" in caplog.text
