"""A standalone Spark cluster out of the PySpark wheel: a master and two workers with an executor each, on loopback."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from itertools import pairwise
from pathlib import Path

import psutil
import pyspark

from kctl.jars.java import java_command
from tests.conftest import eventually

__all__ = ["EXECUTORS", "SparkCluster", "running_cluster"]

EXECUTORS = 2
START_SECONDS = 60.0
SPARK_HOME = Path(pyspark.__file__).parent
CONF = """\
"spark.driver.host" = "127.0.0.1"
"spark.driver.bindAddress" = "127.0.0.1"
"spark.executor.cores" = "1"
"spark.executor.memory" = "512m"
"""
"""What a driver on this machine needs to run on it, as lines of `[spark.conf]`."""
OPEN = '"spark.authenticate" = "false"\n'
"""Without it a standalone cluster that has no secret is refused."""

AUTHENTICATED = """\
spark.authenticate true
spark.authenticate.secret {secret}
spark.network.crypto.enabled true
spark.network.crypto.saslFallback false
"""


class SparkCluster:
    """Its processes are ended by the process that started them."""

    def __init__(self, directory: Path, secret: str | None = None) -> None:
        """With a `secret` it takes only clients that know it, and speaks nothing but encrypted."""
        self.directory = directory
        self.conf_dir = directory / "conf"
        self.conf_dir.mkdir()
        if secret is not None:
            defaults = self.conf_dir / "spark-defaults.conf"
            defaults.touch(0o600)
            defaults.write_text(AUTHENTICATED.format(secret=secret))
        self.conf = CONF + (OPEN if secret is None else "")
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, stack: ExitStack) -> None:
        master = self._launch(stack, "master", "deploy.master.Master", "--port", "0", "--webui-port", "0")
        eventually(
            lambda: self._has_logged(master, "Starting Spark master at spark://"), START_SECONDS, "Spark's master runs"
        )
        for number in range(EXECUTORS):
            log = self._launch(
                stack, f"worker-{number}", "deploy.worker.Worker", "--port", "0", "--webui-port", "0", "--cores", "1",
                "--memory", "600m", "--work-dir", str(self.directory / "work"), self.url,
            )  # fmt: skip
            is_registered = partial(self._has_logged, log, "Successfully registered with master")
            eventually(is_registered, START_SECONDS, "a worker runs")

    @property
    def url(self) -> str:
        [url] = set(re.findall(r"spark://127\.0\.0\.1:\d+", (self.directory / "master.log").read_text()))
        return str(url)

    def executor_of(self, pid: int) -> int | None:
        """The executor's JVM that a process descends from; None for one of somebody else."""
        try:
            ancestors = psutil.Process(pid).parents()
        except psutil.NoSuchProcess:
            return None
        ours = {process.pid for process in self.processes}
        for below, above in pairwise(ancestors):
            if above.pid in ours:
                return below.pid
        return None

    def _launch(self, stack: ExitStack, name: str, main: str, *arguments: str) -> Path:
        log = self.directory / f"{name}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [SPARK_HOME / "bin" / "spark-class", f"org.apache.spark.{main}", "--host", "127.0.0.1", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={
                    **os.environ,
                    "SPARK_HOME": str(SPARK_HOME),
                    "SPARK_CONF_DIR": str(self.conf_dir),
                    "JAVA_HOME": str(java_command().resolve().parents[1]),
                    "SPARK_LOCAL_IP": "127.0.0.1",
                    "SPARK_LOCAL_DIRS": str(self.directory / "local"),
                    "SPARK_DAEMON_MEMORY": "256m",
                },
            )
        stack.callback(_end, process)
        self.processes.append(process)
        return log

    def _has_logged(self, log: Path, text: str) -> bool:
        words = log.read_text()
        assert self.processes[-1].poll() is None, words
        return text in words


def running_cluster(directory: Path, secret: str | None = None) -> Iterator[SparkCluster]:
    """For a fixture."""
    directory.mkdir()
    with ExitStack() as stack:
        cluster = SparkCluster(directory, secret)
        cluster.start(stack)
        yield cluster


def _end(process: subprocess.Popen[bytes]) -> None:
    """With the executors that it has started."""
    children = psutil.Process(process.pid).children(recursive=True)
    process.terminate()
    process.wait()
    for child in children:
        if child.is_running():
            child.kill()
    psutil.wait_procs(children, 10)
