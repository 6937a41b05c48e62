"""Checks that executors on other machines exist and that this machine sees their files. If files are missing,
this check's error names the executor's machine, unlike the error of a batch."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from kctl_agent.process.tracebacks import first_line
from kctl_agent.storage.base import StorageUnusable
from kctl_agent.storage.lake.delta.batch_plans import BATCH
from kctl_agent.storage.lake.folder import Folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

START_SECONDS = 10.0
RETRY_SECONDS = 5.0
_POLL_SECONDS = 0.5
_HOST = "coalesce(try_reflect('java.net.InetAddress', 'getLocalHost'), 'an executor')"


class ExecutorCheck:
    """Repeats the check in a thread until it succeeds. Checks again when a job has lost all executors. `why` is the
    reason why no executors can be used, or None."""

    def __init__(self, session: SparkSession, folder: Folder, pool: str) -> None:
        self._session, self._folder, self._pool = session, folder, pool
        self._context: Any = session.sparkContext
        self._ended = threading.Event()
        self.why: str | None = f"waits for executors of {self._context.master}"
        threading.Thread(target=self._run, name="kctl-executors", daemon=True).start()

    def end(self) -> None:
        self._ended.set()

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                self._await_executor()
                self._check()
            except Exception as error:  # the worker reports it until the check succeeds
                log.debug("executors cannot be used", exc_info=True)
                what = f"executors of {self._context.master} cannot write into {self._folder} (storage.uri)"
                self.why = str(error) if isinstance(error, StorageUnusable) else f"{what}: {_cause(error)}"
                self._ended.wait(RETRY_SECONDS)
            else:
                self.why = None
                self._await_loss()

    def _await_executor(self) -> None:
        began = time.monotonic()
        while not self._has_executor() and not self._ended.wait(_POLL_SECONDS):
            if time.monotonic() > began + START_SECONDS:
                at = ":".join(self._session.conf.get(f"spark.driver.{name}") or "?" for name in ("host", "port"))
                self.why = (
                    f"no executor of {self._context.master} runs: the cluster has no free cores or memory, or its "
                    f"machines cannot reach {at} (spark.driver.host)"
                )
                return  # and try a job, for which some clusters first start executors

    def _await_loss(self) -> None:
        try:
            while not self._ended.wait(RETRY_SECONDS) and (self._has_executor() or not self._has_job()):
                pass
        except Exception:  # whatever Py4J raises: the driver is gone, and the next one gets its own check
            log.debug("Spark's context cannot be asked", exc_info=True)
            self.end()

    def _has_executor(self) -> bool:
        return bool(self._context._jsc.sc().getExecutorMemoryStatus().size() > 1)  # noqa: SLF001 - the driver is one

    def _has_job(self) -> bool:
        return bool(self._context.statusTracker().getActiveJobsIds())

    def _check(self) -> None:
        from kctl_agent.worker.query.committed_files import write_committed

        self._context.setLocalProperty("spark.scheduler.pool", self._pool)
        tasks, content = self._context.defaultParallelism, uuid.uuid4().hex
        rows = self._session.range(0, tasks, 1, tasks).selectExpr(f"'{content}' as content", f"{_HOST} as host")
        folder = self._folder.subfolder(f"{BATCH}{content}")  # the maintenance removes it if this process is killed
        try:
            if folder.local is not None:
                for each in self._folder, folder:
                    each.make()
            for name in sorted(write_committed(rows, folder.spark_uri, ["host"])):
                self._read(folder, name, content)
        finally:
            folder.remove_all()

    def _read(self, folder: Folder, name: str, content: str) -> None:
        import pyarrow.parquet as pq

        host, here = unquote(name.partition("/")[0].removeprefix("host=")), socket.gethostname()
        try:
            with folder.open(name) as opened:
                found = set(pq.read_table(opened, columns=["content"])["content"].to_pylist())
        except FileNotFoundError:
            found = set()
        if found != {content}:
            raise StorageUnusable(
                f"{self._folder} (storage.uri) is not the same folder on {host} and on {here}, so kctl does not see "
                "the files of executors there: share it between the driver and all executors, or keep the table in "
                "s3://"
            )
        if folder.local is not None and (owner := Path(folder.local, name).stat().st_uid) != os.geteuid():
            raise StorageUnusable(
                f"executors on {host} write {self._folder} (storage.uri) as user {owner}, but kctl on {here} runs as "
                f"user {os.geteuid()}: run them as one user, because each removes files of the other"
            )


def _cause(error: Exception) -> str:
    causes = (line for line in str(error).splitlines() if "Exception: " in line and "Job aborted" not in line)
    return next(causes, "").partition(": ")[2].strip() or first_line(error)
