"""Forks processes off one that has imported the control plane. The import takes a second of processor time, and the
integration tests start a hundred masters."""

from __future__ import annotations

import atexit
import importlib
import json
import os
import random
import resource
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from tests.conftest import PRELOADED

ROOT = Path(__file__).parents[1]


class Forked:
    def __init__(self, origin: Preloaded, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._origin = origin
        self._end = os.pidfd_open(pid)

    def poll(self) -> int | None:
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired("a forked process", timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def _ended(self, timeout: float | None) -> int | None:
        if self.returncode is None:
            end = select.poll()
            end.register(self._end)
            if end.poll(None if timeout is None else timeout * 1000):
                os.close(self._end)
                self.returncode = self._origin.ask(wait=self.pid)
        return self.returncode


class Preloaded:
    def __init__(self, module: str) -> None:
        """`module` has the functions to call."""
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.preloaded", module, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                cwd=ROOT,
            )
        PRELOADED.add(self._process.pid)
        self._lines = ours.makefile("rw")
        ours.close()
        self._lock = threading.Lock()

    def start(self, function: str, log: Path, *arguments: str) -> Forked:
        """Forks a process that calls this function. The function's result is the exit code. The process has this
        process's environment and descriptor limit, and `arguments` in its sys.argv[1:]."""
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        request = {"function": function, "arguments": arguments, "log": str(log)}
        return Forked(self, self.ask(**request, env=dict(os.environ), limits=limits))

    def ask(self, **request: Any) -> int:
        with self._lock:
            self._lines.write(json.dumps(request) + "\n")
            self._lines.flush()
            return int(self._lines.readline())

    def close(self) -> None:
        self._lines.close()
        self._process.wait()


@cache
def preloaded(module: str) -> Preloaded:
    made = Preloaded(module)
    atexit.register(made.close)
    return made


def main(module: str, descriptor: str) -> int:
    """Answers a request to fork with the process id, and a request to wait with the exit code."""
    functions = importlib.import_module(module)
    connection = socket.socket(fileno=int(descriptor))
    with connection, connection.makefile("rw") as lines:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for line in lines:
            request = json.loads(line)
            if "wait" in request:
                answer = os.waitstatus_to_exitcode(os.waitpid(request["wait"], 0)[1])
            elif not (answer := os.fork()):
                break
            lines.write(f"{answer}\n")
            lines.flush()
        else:
            return 0
    _begin(request)
    call: Callable[[], int] = getattr(functions, request["function"])
    return call()


def _begin(request: dict[str, Any]) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.setsid()
    os.environ.clear()
    os.environ.update(request["env"])
    resource.setrlimit(resource.RLIMIT_NOFILE, request["limits"])
    random.seed()
    sys.argv[1:] = request["arguments"]
    log = os.open(request["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    for descriptor in (1, 2):
        os.dup2(log, descriptor)
    os.close(log)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
