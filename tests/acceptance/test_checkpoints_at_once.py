"""Two processes of kctl and a user can write checkpoints of one table at full speed: delta-rs, Spark and kctl can read
it at any time, and no row is missing."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from kctl_agent.storage.base import StorageUnusable
from kctl_agent.storage.chunk import Binding, StoredOffset
from kctl_agent.storage.lake.delta import checkpoint
from kctl_agent.storage.lake.delta.log import read_again
from tests.acceptance.delta_spark import DeltaSpark
from tests.acceptance.tables import later
from tests.conftest import eventually
from tests.lake_tables import TOPIC_ID, TP, begun, opened

ROOT = Path(__file__).parents[2]
GROUPS = ("payments", "billing")
USER = "user"


def commit_and_checkpoint(path: Path, group: str) -> None:
    storage = opened(path, Binding(group, "cluster-1"))
    storage.init_offsets([StoredOffset(*TP, TOPIC_ID, 0)])
    committed = 0
    while not is_over():
        with suppress(StorageUnusable):  # a newer checkpoint leaves open whether the commit is part of the log
            begun(storage, committed, committed + 1).commit()
        committed = storage.stored_offsets([TP])[TP].next
        print(committed, flush=True)
        checkpoint.main(str(path), None, False)


def checkpoint_as_a_user(path: Path) -> None:
    written = 0
    while not is_over():
        table_of(path).create_checkpoint()
        print(written := written + 1, flush=True)


def table_of(path: Path) -> DeltaTable:
    # Any reader of delta-rs misses a log entry that is written during its listing.
    return read_again(lambda: DeltaTable(path), DeltaError)


def is_over() -> bool:
    return bool(select.select([sys.stdin], [], [], 0)[0])


class Writers:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._outputs = {name: path.with_name(name) for name in (*GROUPS, USER)}
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Writers:
        for name, output in self._outputs.items():
            command = [sys.executable, __file__, str(self._path), name]
            env = {**os.environ, "PYTHONPATH": str(ROOT)}
            with output.open("wb") as stdout:
                self._processes.append(subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=stdout))
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._processes:
            assert each.stdin is not None
            each.stdin.close()
        for each in self._processes:
            each.wait(60)

    def counted(self, name: str) -> int:
        lines = self._outputs[name].read_text().split("\n")
        return int(lines[-2]) if len(lines) > 1 else 0

    @property
    def committed(self) -> list[int]:
        return [self.counted(group) for group in GROUPS]

    @property
    def are_writing(self) -> bool:
        return min(self.counted(name) for name in self._outputs) > 10

    @property
    def failed(self) -> list[int]:
        return [code for each in self._processes if (code := each.poll())]


def read_throughout(path: Path, seconds: float, count_by_another: Callable[[], int]) -> None:
    opened(path)
    with Writers(path) as writers:
        eventually(lambda: writers.are_writing or writers.failed, 60, "all three write")
        is_late = later(seconds)
        while not is_late() and not writers.failed:
            before = writers.committed
            storages = [opened(path, Binding(group, "cluster-1")) for group in GROUPS]
            stored = [each.stored_offsets([TP])[TP].next for each in storages]
            assert all(now >= then for now, then in zip(stored, before, strict=True))
            rows = storages[0].count().rows
            assert rows is not None
            assert rows >= sum(before)
            assert table_of(path).count() >= sum(before)
            assert count_by_another() >= sum(before)

    assert not writers.failed, "its error is above"
    assert DeltaTable(path).to_pyarrow_table().num_rows == sum(writers.committed) == count_by_another()
    assert list(path.glob("_delta_log/*.checkpoint.parquet"))
    assert not list(path.glob("_kctl/checkpoint-*"))


@pytest.mark.timeout(200)
@pytest.mark.shows("with a table that several fleets write, no row is lost or doubled")
def test_a_table_whose_checkpoints_three_processes_write_is_read_throughout(short_dir: Path) -> None:
    read_throughout(path := short_dir / "orders", 5, lambda: table_of(path).count())


@pytest.mark.long
@pytest.mark.timeout(600)
def test_spark_too_reads_a_table_whose_checkpoints_three_processes_write_for_five_minutes(short_dir: Path) -> None:
    path = short_dir / "orders"
    with DeltaSpark(short_dir / "delta") as delta:
        read_throughout(path, 300, lambda: int(delta.sql(f"select count(*) from delta.`{path}`").rows[0][0]))


if __name__ == "__main__":
    if sys.argv[2] == USER:
        checkpoint_as_a_user(Path(sys.argv[1]))
    else:
        commit_and_checkpoint(Path(sys.argv[1]), sys.argv[2])
