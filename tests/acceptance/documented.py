"""Runs the lines of a page of the documentation as its reader does, in a folder of its own and with other names."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.conftest import BRIEF_JVM


class Terminals:
    def __init__(self, folder: Path, names: Mapping[str, str], cwd: Path | None = None, **environment: str) -> None:
        """`names` maps words of the page to those used instead. The lines' output goes to `folder/log`."""
        self._folder, self._names, self._cwd = folder, names, cwd or folder
        self._open: list[subprocess.Popen[bytes]] = []
        self._env = os.environ | {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "SPARK_SUBMIT_OPTS": BRIEF_JVM,
            "SPARK_LOCAL_IP": "127.0.0.1",
            **environment,
        }

    def own(self, text: str) -> str:
        for name, own in self._names.items():
            text = text.replace(name, own)
        return text

    def run(self, lines: str) -> str:
        with (self._folder / "log").open("ab") as log:
            command = ["bash", "-c", self.own(lines)]
            return subprocess.run(command, env=self._env, cwd=self._cwd, stdout=-1, stderr=log, text=True).stdout

    def begin(self, lines: str) -> subprocess.Popen[bytes]:
        """Runs the lines in their own terminal until `close`."""
        with (self._folder / "log").open("ab") as log:
            self._open.append(
                subprocess.Popen(
                    ["bash", "-c", self.own(lines)],
                    env=self._env,
                    cwd=self._cwd,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )
        return self._open[-1]

    def close(self) -> None:
        """Sends Ctrl-C to each terminal, the last one first."""
        for each in reversed(self._open):
            for number in (signal.SIGINT, signal.SIGKILL):
                try:
                    os.killpg(each.pid, number)
                    each.wait(20)
                except (ProcessLookupError, subprocess.TimeoutExpired):
                    continue
        print((self._folder / "log").read_text()[-5000:])
