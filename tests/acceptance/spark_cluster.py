"""A standalone Spark cluster from the PySpark wheel: a master, and workers with an executor each, on loopback."""

import os
import subprocess
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import psutil

from kctl.demo.kafka_broker import free_ports
from kctl.jars.java import java_command
from tests.conftest import BRIEF_JVM, eventually

EXECUTORS = 2
START_SECONDS = 60.0
CONF = f"""\
"spark.executor.extraJavaOptions" = "{BRIEF_JVM}"
"spark.driver.host" = "127.0.0.1"
"spark.driver.bindAddress" = "127.0.0.1"
"spark.executor.cores" = "1"
"spark.executor.memory" = "512m"
"""  # what a driver on this machine needs to use the cluster, as lines of `[spark.conf]`
OPEN = '"spark.authenticate" = "false"\n'  # kctl rejects a standalone cluster without a secret unless this is set

SPECULATION = """\
"spark.speculation" = "true"
"spark.speculation.interval" = "100ms"
"spark.speculation.task.duration.threshold" = "1s"
"""  # makes Spark run a task that takes longer than a second twice
DAEMONS = """\
spark.deploy.recoveryMode FILESYSTEM
spark.deploy.recoveryDirectory {folder}
spark.decommission.enabled true
spark.worker.timeout 15
"""
AUTHENTICATED = """\
spark.authenticate true
spark.authenticate.secret {secret}
spark.network.crypto.enabled true
spark.network.crypto.saslFallback false
"""


class SparkCluster:
    """The processes end with their parent. A restarted master still knows its cluster."""

    def __init__(
        self, directory: Path, secret: str | None = None, *, workers: int = EXECUTORS, private: Path | None = None
    ) -> None:
        """With a `secret`, it accepts only clients that know the secret, and encrypts everything. The last worker sees
        an empty folder of its own in place of `private`, as on another machine."""
        self.directory = directory
        directory.mkdir()
        self._workers = workers
        self._private = private
        [self._port] = free_ports(1)
        self.conf_dir = directory / "conf"
        self.conf_dir.mkdir()
        defaults = self.conf_dir / "spark-defaults.conf"
        defaults.touch(0o600)
        authenticated = "" if secret is None else AUTHENTICATED.format(secret=secret)
        defaults.write_text(DAEMONS.format(folder=directory / "recovery") + authenticated)
        self.conf = CONF + (OPEN if secret is None else "")
        self.url = f"spark://127.0.0.1:{self._port}"
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def processes(self) -> list[subprocess.Popen[bytes]]:
        return list(self._running.values())

    @property
    def names(self) -> list[str]:
        return list(self._running)

    def pid(self, name: str) -> int:
        return self._running[name].pid

    def settings(self, more: str = "") -> dict[str, str]:
        """Settings of a fleet's driver for this cluster. `more` is lines of `[spark.conf]`."""
        return {"spark_master": self.url, "spark_conf": self.conf + more}

    def start(self, stack: ExitStack) -> None:
        self._stack = stack
        self.run("master")
        self.run(*(f"worker-{number}" for number in range(self._workers)))

    def run(self, *names: str) -> None:
        for name in names:
            if name == "master":
                self._launch(name, "deploy.master.Master", "--port", str(self._port), "--webui-port", "0")
            else:
                self._launch(
                    name, "deploy.worker.Worker", "--port", "0", "--webui-port", "0", "--cores", "1",
                    "--memory", "600m", "--work-dir", str(self.directory / "work"), self.url,
                )  # fmt: skip
        for name in names:
            started = "Starting Spark master at" if name == "master" else "Successfully registered with master"
            eventually(partial(self._has_logged, name, started), START_SECONDS, f"Spark's {name} runs")

    def executors(self) -> list[psutil.Process]:
        found: list[psutil.Process] = []
        for process in self.processes:
            with suppress(psutil.NoSuchProcess):
                found += filter(is_executor, psutil.Process(process.pid).children(recursive=True))
        return found

    def executor_of(self, pid: int) -> int | None:
        try:
            ancestors = psutil.Process(pid).parents()
        except psutil.NoSuchProcess:
            return None
        ours = {process.pid for process in self.processes}
        for below, above in pairwise(ancestors):
            if above.pid in ours:
                return below.pid
        return None

    def _launch(self, name: str, main: str, *arguments: str) -> None:
        found = find_spec("pyspark")
        assert found is not None
        assert found.origin is not None
        home = Path(found.origin).parent
        # Spark runs the second attempt of a task on another host only.
        host = "127.0.0.1" if name == "master" else f"127.0.0.{int(name.removeprefix('worker-')) + 2}"
        command: list[str | Path] = [home / "bin" / "spark-class", f"org.apache.spark.{main}", "--host", host]
        command += arguments
        if self._private is not None and name == f"worker-{self._workers - 1}":
            hide = 'mount -t tmpfs tmpfs "$0" && exec "$@"'
            command = ["unshare", "--mount", "sh", "-c", hide, self._private, *command]
        with self._log(name).open("wb") as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={
                    **os.environ,
                    "SPARK_HOME": str(home),
                    "SPARK_CONF_DIR": str(self.conf_dir),
                    "JAVA_HOME": str(java_command().resolve().parents[1]),
                    "SPARK_LOCAL_IP": host,
                    "SPARK_LOCAL_DIRS": str(self.directory / "local"),
                    "SPARK_DAEMON_MEMORY": "256m",
                    "SPARK_DAEMON_JAVA_OPTS": BRIEF_JVM,
                },
            )
        self._stack.callback(_end, process)
        self._running[name] = process

    def log_tail(self) -> str:
        lines = [line[:200] for name in self.names for line in self._log(name).read_text().splitlines()[-20:]]
        return "\n".join(lines)

    def _log(self, name: str) -> Path:
        return self.directory / f"{name}.log"

    def _has_logged(self, name: str, text: str) -> bool:
        words = self._log(name).read_text()
        assert self._running[name].poll() is None, words
        return text in words


MakeCluster = Callable[..., SparkCluster]


def is_executor(process: psutil.Process) -> bool:
    try:
        return any("CoarseGrainedExecutorBackend" in word for word in process.cmdline())
    except psutil.NoSuchProcess:  # spark-class may leave a zombie to the JVM that it becomes
        return False


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is not None:
        return
    children = psutil.Process(process.pid).children(recursive=True)
    process.terminate()
    process.wait()
    for child in children:
        if child.is_running():
            child.kill()
    psutil.wait_procs(children, 10)
