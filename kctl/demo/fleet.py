"""The fleet of the demo: a folder with `kctl.toml`, and an ordinary master."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kctl.children import dies_with_parent, python_module, safe_environment
from kctl.config.load import load
from kctl.config.storage import storage_settings
from kctl.demo.audit import FOLDER_VARIABLE, HANDLER
from kctl.errors import KctlError, UsageError
from kctl.fleets import announced
from kctl.rpc.client import call
from kctl_agent.errors import AgentError
from kctl_agent.rpc.messages import Request, Role, reducer_method
from kctl_agent.storage.base import Storage
from kctl_agent.storage.kinds import KINDS, open_lake, open_storage

if TYPE_CHECKING:
    from kctl_agent.storage.lake.storage import LakeStorage

GROUP = "demo"

SETTLE_SECONDS = 60.0

TOML = """\
# written by `kctl demo`
[fleet]
name = "demo"
run_dir = "run"
data_dir = "data"
log_dir = "logs"

[kafka]
bootstrap_servers = "{bootstrap_servers}"
group = "{group}"
topics = ["{topic}"]
session_timeout_seconds = 6.0

[workers]
count = {workers}
max_records_per_batch = 200000
trigger_seconds = 0.0

[spark]
master = "local[2]"

[spark.conf]
# Java's quick compiler alone: the other one takes half of the processor time of a short demo. This collector stops all
# to make the heap larger, so it is large from the start.
"spark.driver.extraJavaOptions" = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xms400m -Xmn160m"

[storage]
mode = "{storage}"
path = "data/storage.sqlite"
{place}
{sinkers}

[http]
port = 0
"""


def lay_out(directory: Path) -> None:
    """Makes or clears the demo's folder. Raises UsageError if it is not empty and not from an earlier demo."""
    marker = directory / ".kctl-demo"
    if directory.exists() and any(directory.iterdir()) and not marker.exists():
        raise UsageError(
            f"{directory} is not empty and not the folder of an earlier demo; name a new folder with --dir"
        )
    for name in ("run", "data", "logs", "broker"):
        shutil.rmtree(directory / name, ignore_errors=True)
    directory.mkdir(parents=True, exist_ok=True)
    marker.touch()
    (directory / "logs").mkdir()


class DemoFleet:
    """Runs `kctl start` as a process. `ask` returns the result of `kctl rpc`, or None after an error."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.config = directory / "kctl.toml"
        self.log = directory / "logs" / "master.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def ledger(self) -> Path:
        return self.directory / "data" / "ledger"

    def configure(
        self, *, bootstrap_servers: str, topic: str, workers: int, storage: str = "file", sinkers: int = 0
    ) -> None:
        settings = {
            "bootstrap_servers": bootstrap_servers,
            "topic": topic,
            "workers": workers,
            "storage": storage,
            "group": GROUP,
            "place": "",
            "sinkers": f'[sinkers]\ncount = {sinkers}\nhandler = "{HANDLER}"\n',
        }
        if KINDS[storage].is_table:
            settings |= {"place": f'uri = "{(self.directory / "data" / "table").as_uri()}"\n', "sinkers": ""}
        self.config.write_text(TOML.format(**settings))

    def open_storage(self) -> Storage:
        return open_storage(storage_settings(load(self.config, {})))

    def open_lake(self) -> LakeStorage:
        return open_lake(storage_settings(load(self.config, {})))

    def start(self) -> None:
        """Starts the master. If the calling thread or this process ends without `stop`, the master stops cleanly."""
        self.ledger.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*dies_with_parent("TERM"), *python_module("kctl", "start", "-c", str(self.config))],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**safe_environment(), FOLDER_VARIABLE: str(self.ledger)},
                start_new_session=True,  # a terminal's Ctrl-C is for the demo, which stops the fleet in order
            )

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def ended(self) -> int | None:
        """Returns the exit code (negative for a signal) if the master has ended, otherwise None."""
        return self._process.poll() if self._process else None

    def check(self) -> None:
        """If the master has ended, raises KctlError with the end of its log."""
        if (code := self.ended()) is not None:
            raise KctlError(f"the master ended with exit code {code}: {self.last_lines()}")

    def last_lines(self) -> str:
        return " | ".join(self.log.read_text(errors="replace").strip().splitlines()[-5:])

    def ask(self, command: str, timeout_seconds: float = 5.0) -> Any | None:
        request = Request(Role.EXTERNAL, command, reducer_method(command), id="demo")
        try:
            reply = call(self.directory / "run" / "master.sock", request, timeout_seconds)
        except (KctlError, AgentError):
            return None
        return reply.result if reply.ok else None

    def url(self) -> str | None:
        return announced(self.directory / "run").get("http_url")

    def stop(self) -> int | None:
        """Sends SIGTERM to the master, and SIGKILL after 60 s. Returns the exit code."""
        if self._process is None:
            return None
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(SETTLE_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            return self._process.wait()
