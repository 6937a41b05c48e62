"""The master runs the maintenance of a lake's table in its own process."""

import asyncio
import json
import logging
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable

from kctl.config.sections import Config
from kctl.config.storage import storage_settings
from kctl.master import table_maintenance
from kctl.master.snapshot import FleetSnapshot, Reduced
from kctl.master.table_maintenance import MAINTENANCE_COMMAND, TableMaintenance
from kctl.rows.partitions import LagTotals
from kctl_agent.replies.block_size import StorageReply, TableReply
from kctl_agent.storage.chunk import StoredOffset
from kctl_agent.table_maintenance import LEAST_FILES
from tests.configurations import KAFKA, loaded
from tests.lake_tables import TOPIC_ID, TP, at, begun, offsets, opened

QUIET = FleetSnapshot("main", "g", 0.0, 0.0, (), {}, {})
QUIET = replace(
    QUIET, block_size=Reduced(StorageReply(table=TableReply(small_files=LEAST_FILES))), kafka_lag=LagTotals(0)
)
DAY = 86_400.0
HURRIED = """
import os, runpy
os.setpriority = lambda *_: None
runpy.run_module("kctl_agent.table_maintenance", run_name="__main__")
"""
HURRIED_COMMAND = (sys.executable, "-c", HURRIED)
"""At normal priority: at the lowest it hardly runs beside other tests."""


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return loaded(tmp_path, f'{KAFKA}[storage]\nmode = "lake"\nuri = "{(tmp_path / "orders").as_uri()}"\n')


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("filled") / "orders"
    lake = opened(path)
    lake.init_offsets([StoredOffset(*TP, TOPIC_ID, 0)])
    for start in range(LEAST_FILES):
        begun(lake, start, start + 1).commit()
    return path


@pytest.fixture
def table(config: Config, filled: Path) -> Path:
    path = shutil.copytree(filled, config.path.parent / "orders")
    left = path / "kctl-left" / "part-0.parquet"
    left.parent.mkdir()
    left.write_bytes(b"x")
    os.utime(left, (time.time() - 8 * DAY,) * 2)
    return path


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(table_maintenance, "CHECK_SECONDS", 0.01)
    caplog.set_level(logging.INFO, logger=table_maintenance.__name__)


def run_until(config: Config, is_over: Callable[[], bool], command: Sequence[str] = HURRIED_COMMAND) -> None:
    async def life() -> None:
        task = asyncio.create_task(TableMaintenance(lambda: config, lambda: QUIET, command).run())
        async with asyncio.timeout(60):
            while not is_over():  # noqa: ASYNC110 - a log and a file of another process have no event
                await asyncio.sleep(0.02)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(life())


def test_small_and_abandoned_files_are_cleared(config: Config, table: Path, caplog: pytest.LogCaptureFixture) -> None:
    table.with_name("orders_dead_letters").mkdir()  # a folder in the place of the table of dead letters is none

    run_until(config, lambda: bool(caplog.messages))

    removed = "1 file removed that no recent version uses"
    assert caplog.messages[0].startswith(
        f"action=maintenance table={config.storage.uri}: {removed}; {LEAST_FILES} files ("
    )
    assert len(DeltaTable(table).file_uris()) == 1
    assert not (table / "kctl-left").exists()
    assert offsets(table) == list(range(LEAST_FILES))
    assert at(opened(table)) == StoredOffset(*TP, TOPIC_ID, LEAST_FILES, 1)


def test_what_fails_keeps_nothing_else_from_being_done(config: Config, table: Path, filled: Path) -> None:
    dead_letters = table.with_name("orders_dead_letters")
    shutil.copytree(filled, dead_letters)
    for file in table.glob("kctl-*/*.parquet"):
        if file.parent.name != "kctl-left":
            file.write_bytes(b"x")

    code, output = ran_once(config, HURRIED_COMMAND)

    assert code == 1
    assert b"1 file removed" in output
    assert b"cannot be used: " in output
    assert len(DeltaTable(dead_letters).file_uris()) == 1


def test_a_table_that_cannot_be_looked_after_is_a_warning(config: Config, caplog: pytest.LogCaptureFixture) -> None:
    (config.path.parent / "orders").mkdir()

    run_until(config, lambda: bool(caplog.messages), MAINTENANCE_COMMAND)
    run_until(config, lambda: len(caplog.messages) > 1, ["/does/not/exist"])

    assert [record.levelname for record in caplog.records] == ["WARNING"] * 2
    assert "there is no Delta table in" in caplog.messages[0]
    assert caplog.messages[1].endswith("/does/not/exist cannot be run: No such file or directory")


def test_what_is_under_way_when_the_master_stops_is_killed(config: Config, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    waits = f"import os, pathlib, sys; pathlib.Path({str(pid)!r}).write_text(str(os.getpid())); sys.stdin.read()"

    run_until(config, lambda: pid.exists() and bool(pid.read_text()), [sys.executable, "-c", waits])

    assert not Path("/proc", pid.read_text()).exists()


def ran_once(config: Config, command: Sequence[str]) -> tuple[int, bytes]:
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(storage_settings(config) | {"group": config.kafka.group}).encode() + b"\n")
        process.stdin.flush()
        output = process.stdout.read()
        return process.wait(60), output
