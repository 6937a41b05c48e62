"""Without a JVM: the executors' files are in a folder of this machine."""

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kctl_agent.storage.lake.folder import LocalFolder
from kctl_agent.worker.query import committed_files, executor_check
from kctl_agent.worker.query.executor_check import ExecutorCheck
from tests.conftest import eventually, raising

FILE = "host=node-7%2F10.0.0.7/part-0.parquet"
Write = Callable[[Path, str], None]


class Session:
    def __init__(self) -> None:
        self.executors = 2
        self.jobs: list[int] = []
        self.asked = 0
        context = SimpleNamespace(getExecutorMemoryStatus=self._status)
        self.sparkContext = SimpleNamespace(
            master="spark://one:7077",
            defaultParallelism=4,
            setLocalProperty=lambda *_: None,
            statusTracker=lambda: SimpleNamespace(getActiveJobsIds=lambda: self.jobs),
            _jsc=SimpleNamespace(sc=lambda: context),
        )
        self.conf = {"spark.driver.host": "kctl-1", "spark.driver.port": "4040"}

    def _status(self) -> Any:
        self.asked += 1
        return SimpleNamespace(size=lambda: self.executors + 1)

    def range(self, *_: int) -> Any:
        return SimpleNamespace(selectExpr=lambda content, _: content.split("'")[1])


def written(folder: Path, content: str) -> None:
    (folder / FILE).parent.mkdir()
    pq.write_table(pa.table({"content": [content]}), folder / FILE)


def check(monkeypatch: pytest.MonkeyPatch, path: Path, session: Session, write: Write) -> ExecutorCheck:
    def write_committed(content: str, uri: str, _: object) -> frozenset[str]:
        eventually(lambda: session.executors, 5, "an executor runs")
        write(Path(uri.removeprefix("file://")), content)
        return frozenset([FILE])

    monkeypatch.setattr(committed_files, "write_committed", write_committed)
    monkeypatch.setattr(executor_check, "RETRY_SECONDS", 0.05)
    monkeypatch.setattr(executor_check, "_POLL_SECONDS", 0.05)
    return ExecutorCheck(session, LocalFolder(path), "worker-0")


def test_files_of_executors_go_and_an_idle_cluster_is_fine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(executor_check, "START_SECONDS", 0.0)
    session = Session()
    found = check(monkeypatch, tmp_path, session, written)
    eventually(lambda: found.why is None, 5, "executors can be used")
    assert list(tmp_path.iterdir()) == []

    session.executors = 0  # as with `spark.dynamicAllocation.enabled`
    asked = session.asked

    eventually(lambda: session.asked > asked + 3, 5, "it was asked some times")
    assert found.why is None
    found.end()


ABORTED = RuntimeError(
    "Job aborted due to stage failure: Task 0 failed\n"
    "\tat java.io.IOException: Mkdirs failed to create file:/srv/orders (exists=false)\n\tat x.y"
)
NOT_SHARED = "{table} (storage.uri) is not the same folder on node-7/10.0.0.7 and on"
OF_ANOTHER = f"as user {os.getuid()}, but kctl on {os.uname().nodename} runs as user 4711"


@pytest.mark.parametrize(
    ("write", "words", "user"),
    [
        (lambda *_: None, NOT_SHARED, os.geteuid()),
        (lambda folder, _: written(folder, "of an earlier check"), NOT_SHARED, os.geteuid()),
        (raising(ABORTED), "{table} (storage.uri): Mkdirs failed to create file:/srv/ord", os.geteuid()),
        (written, OF_ANOTHER, 4711),
    ],
)
def test_faults_are_shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, write: Write, words: str, user: int) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: user)
    found = check(monkeypatch, tmp_path, Session(), write)
    try:
        eventually(lambda: words.format(table=tmp_path) in (found.why or ""), 5, "it is reported")
    finally:
        found.end()


def test_missing_and_lost_executors_are_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(executor_check, "START_SECONDS", 0.1)
    session = Session()
    session.executors = 0
    found = check(monkeypatch, tmp_path, session, written)
    words = "no executor of spark://one:7077 runs: the cluster has no free cores or memory, or its machines"
    eventually(lambda: words in (found.why or ""), 5, "it is reported")
    assert "kctl-1:4040 (spark.driver.host)" in (found.why or "")

    session.executors = 1
    eventually(lambda: found.why is None, 5, "executors can be used")

    session.jobs, session.executors = [7], 0
    eventually(lambda: words in (found.why or ""), 5, "it is reported")
    session.executors = 1
    eventually(lambda: found.why is None, 5, "executors can be used")
    found.end()
