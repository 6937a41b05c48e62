import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from deltalake import DeltaTable

from kctl_agent.storage.chunk import Advance, Binding, StoredOffset
from kctl_agent.storage.lake.delta import checkpoint, table
from kctl_agent.storage.lake.delta.log import LogFiles, log_files, write_entry
from kctl_agent.storage.lake.delta.log_state import LogState
from kctl_agent.storage.lake.storage import LakeStorage
from tests.lake_tables import TOPIC_ID, TP, begun, offsets, opened

DAY = 86_400.0


def configured(path: Path, **properties: str) -> LakeStorage:
    made = opened(path)
    DeltaTable(path).alter.set_table_properties({f"delta.{name}": value for name, value in properties.items()})
    made.init_offsets([StoredOffset(*TP, TOPIC_ID, 0)])
    return made


@pytest.mark.shows("stored offsets survive checkpoint, clean-up of the log, compaction and vacuum")
def test_a_checkpoint_due_is_written_despite_other_commits(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = configured(path, checkpointInterval="4")
    other = opened(path, Binding("other", "cluster-1"), start=0)
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
def test_the_log_is_cleaned_up_weekly_unless_forbidden(path: Path, cleans_up: str, is_kept: bool) -> None:
    storage = configured(path, enableExpiredLogCleanup=cleans_up)
    begun(storage, 0, 10).commit()
    checkpoint.main(str(path), None)
    begun(storage, 10, 20).commit()
    for entry in (path / "_delta_log").iterdir():
        os.utime(entry, (time.time() - 8 * DAY,) * 2)

    checkpoint.main(str(path), None)

    assert (path / "_delta_log" / f"{0:020}.json").exists() == is_kept


def test_a_checkpoint_is_named_once_it_is_on_the_disk(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a power cut in between, the log still has its previous checkpoint."""
    storage = configured(path)
    left = path / "_kctl" / "checkpoint-of-one-that-was-killed"
    left.mkdir(parents=True)
    os.utime(left, (1, 1))
    written, pointer = f"{2:020}.checkpoint.parquet", "_last_checkpoint"
    steps: list[str] = []

    def synced(number: int) -> None:
        name = Path(f"/proc/self/fd/{number}").readlink().name
        steps.append(f"sync {'new file' if name.startswith('_commit_') else name}")

    def named(do: Callable[[Path, Path], None]) -> Callable[[Path, Path], None]:
        def noted(file: Path, to: Path) -> None:
            assert not to.exists()
            steps.append(f"name {to.name}")
            do(file, to)

        return noted

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "link", named(os.link))
    monkeypatch.setattr(os, "replace", named(os.replace))

    checkpoint.main(str(path), None)

    new = ["sync new file", f"name {written}", "sync _delta_log"]
    assert steps == [*new, f"sync {pointer}", f"name {pointer}", "sync _delta_log"]
    assert not list((path / "_kctl").glob("checkpoint-*"))
    assert log_files(storage.folder).checkpoint == DeltaTable(path).version() == 2


def test_a_version_that_has_a_checkpoint_keeps_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if another process writes it at the same time, because its readers have listed its size."""
    storage = configured(path)
    DeltaTable(path).create_checkpoint()
    [first] = files = list((path / "_delta_log").glob("*.checkpoint.parquet"))
    before = first.stat()

    checkpoint.main(str(path), None)
    with monkeypatch.context() as patched:
        patched.setattr(checkpoint, "log_files", lambda _: LogFiles(-1, (), ()))
        patched.setattr(LogState, "read", lambda _: SimpleNamespace(log=LogFiles(-1, (), (0, 1, 2))))
        checkpoint.main(str(path), None)

    assert first.lstat() == before
    assert list((path / "_delta_log").glob("*.checkpoint.parquet")) == files
    begun(storage, 0, 10).commit()
    assert offsets(path) == list(range(10))


def test_one_whose_process_was_killed_is_a_warning_with_the_signal(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """If memory is short, this process is killed first."""
    storage = configured(path, checkpointInterval="1")
    storage.table.checkpoints.wait()
    stands_in = tmp_path / "python"
    stands_in.write_text("#!/bin/sh\necho a warning of Python >&2\nkill -9 $$\n")
    stands_in.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(stands_in))

    begun(storage, 0, 10).commit()
    storage.table.checkpoints.wait()

    assert f"no checkpoint of the log of {path} was written: its process was killed by SIGKILL" in caplog.text
