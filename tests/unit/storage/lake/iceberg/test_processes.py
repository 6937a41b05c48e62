"""Processes that make an Iceberg table at once, and one that is killed at each step of a commit."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.unit.storage.lake.iceberg.tables import Lake

ROOT = Path(__file__).parents[5]
IMPORTS = """
import json, os, signal, sys, time
from pathlib import Path
import pyarrow.dataset, pyarrow.parquet, pyiceberg.catalog.sql, pyiceberg.io.pyarrow  # once, and not in each child
import deltalake, sqlalchemy.dialects.sqlite
import kctl_agent.storage.lake.iceberg.data_files, kctl_agent.storage.lake.iceberg.transaction
from kctl_agent.storage.base import StoredOffset
from tests.unit.storage.lake.iceberg.tables import Lake
from tests.unit.storage.lake.test_storage import TP, at, begun
"""
STEPS = """
def killed_at(step):
    fsync, seen = os.fsync, []
    def counted(descriptor):
        for do in (lambda: None, lambda: fsync(descriptor)):  # before what is synced, and after it
            seen.append(do())
            if len(seen) == step:
                os.kill(os.getpid(), signal.SIGKILL)
    os.fsync = counted

def in_child(do):
    read, write = os.pipe()
    if not os.fork():
        os.write(write, json.dumps(do(Lake(Path(sys.argv[1])))).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        text = pipe.read()
    os.wait()
    return json.loads(text) if text else None

def prepared(lake):
    lake.begun_at(0)

def committed(lake):
    storage = lake.opened()
    start = at(storage).next
    batch = begun(storage, start, start + 2)
    killed_at(step)
    batch.commit()
    return True

def found(lake):
    return [at(lake.opened()).next, lake.offsets()]

in_child(prepared)
for step in range(1, 100):
    is_done = in_child(committed)
    print(json.dumps([is_done, *in_child(found)]))
    if is_done:
        break
"""


def test_a_process_that_is_killed_at_any_step_of_a_commit_leaves_rows_and_stored_offset_as_before_or_after_it(
    lake: Lake,
) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", IMPORTS + STEPS, str(lake.folder)], cwd=ROOT, check=True, capture_output=True, text=True
    )

    results = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [is_done for is_done, *_ in results] == [None] * (len(results) - 1) + [True]
    assert len(results) > 12
    for _, stored, offsets in results:
        assert offsets == list(range(stored))
    assert len({stored for _, stored, _ in results}) > 1


MAKERS = """
def made(folder, start):
    folder.mkdir(exist_ok=True)
    while time.monotonic() < start:
        pass
    Lake(folder).opened()
    os._exit(0)

for number in range(5):
    folder, start = Path(sys.argv[1], str(number)), time.monotonic() + 0.1
    for _ in range(4):
        if not os.fork():
            made(folder, start)
    for _ in range(4):
        print(os.waitstatus_to_exitcode(os.wait()[1]))
"""


def test_processes_that_make_catalog_and_table_at_once_all_find_them(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", IMPORTS + MAKERS, str(tmp_path)], cwd=ROOT, check=True, capture_output=True, text=True
    )

    assert (ran.stdout.split(), ran.stderr) == (["0"] * 20, "")
