"""The two-minute run of docs/spark-jobs.md works as it is written: broker, job, `checkpoint show`, exporter."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kctl.demo.kafka_broker import free_ports
from tests.conftest import BRIEF_JVM, eventually

ROOT = Path(__file__).parents[2]
SECTION = (
    (ROOT / "docs" / "spark-jobs.md").read_text(encoding="utf-8").split("## Try it in two minutes")[1].split("\n## ")[0]
)
STAYS = ("kctl demo", "PYSPARK_PYTHON", "kctl exporter")
"""First words of commands that do not return."""


class Terminals:
    """Runs the page's lines in their own folder, with other ports."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        port, http = free_ports(2)
        self._names = {"9092": str(port), "9751": str(http), "/tmp/report": str(folder / "report")}
        self._open: list[subprocess.Popen[str]] = []
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        more = {
            "PATH": path,
            "SPARK_SUBMIT_OPTS": BRIEF_JVM,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "KCTL_HTTP_PORT": str(http),
        }
        self._env = {key: each for key, each in os.environ.items() if not key.startswith("KCTL_")} | more

    def own(self, text: str) -> str:
        for name, own in self._names.items():
            text = text.replace(name, own)
        return text

    def run(self, line: str) -> str:
        with (self.folder / "log").open("a") as log:
            command = ["bash", "-c", self.own(line)]
            if not line.startswith(STAYS):
                return subprocess.run(command, env=self._env, cwd=self.folder, stdout=-1, stderr=log, text=True).stdout
            self._open.append(
                subprocess.Popen(
                    command, env=self._env, cwd=self.folder, stdout=log, stderr=log, text=True, start_new_session=True
                )
            )
            return ""

    def close(self) -> None:
        for each in reversed(self._open):
            os.killpg(each.pid, signal.SIGINT)
            try:
                each.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(each.pid, signal.SIGKILL)
                each.wait()


@pytest.fixture
def terminals(short_dir: Path) -> Iterator[Terminals]:
    made = Terminals(short_dir)
    yield made
    made.close()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", SECTION, re.DOTALL)


def test_the_two_minute_run_shows_the_lag_of_a_job(terminals: Terminals) -> None:
    [job], [settings], [lines] = blocks("python"), blocks("toml"), blocks("sh")
    (terminals.folder / "job.py").write_text(terminals.own(job))
    (terminals.folder / "exporter.toml").write_text(terminals.own(settings))
    broker, create, produce, submit, show, exporter, group = (line.split("   #")[0] for line in lines.splitlines())

    began = time.monotonic()
    terminals.run(broker)
    eventually(lambda: "orders" in terminals.run(create), 60, "the broker answers")
    terminals.run(produce)
    terminals.run(submit)
    eventually(lambda: re.search(r"Spark would start from it", terminals.run(show)), 120, "the job has a checkpoint")
    eventually(lambda: sum(next_offset for next_offset, _ in offsets(terminals.run(show))) == 1000, 60, "all is read")
    terminals.run(exporter)
    in_group = eventually(lambda: "report" in (text := terminals.run(group)) and text, 60, "the exporter shows it")
    print(f"after {time.monotonic() - began:.0f} s", in_group, sep="\n")

    assert [lag for _, lag in offsets(terminals.run(show))] == ["0", "0"]


def offsets(shown: str) -> list[tuple[int, str]]:
    rows = [line.split() for line in shown.splitlines() if line.startswith("orders")]
    return [(int(row[2]), row[5]) for row in rows]
