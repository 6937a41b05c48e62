"""A real redis-server for the demo: on a Unix socket, every write on the disk before it is acknowledged."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from types import TracebackType

from kctl.demo.dies_with_parent import dies_with_parent
from kctl.errors import KctlError

__all__ = ["RedisServer"]

START_SECONDS = 10.0
STOP_SECONDS = 10.0
_POLL_SECONDS = 0.05
_MAX_SOCKET_PATH_BYTES = 107


class RedisServer:
    """A context manager; all of it lies in `directory`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._socket = directory / "redis.sock"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def ended(self) -> int | None:
        """The exit code of a server that has ended by itself, minus the signal that ended it; None while it runs."""
        return self._process.poll() if self._process else None

    @property
    def url(self) -> str:
        return f"unix://{self._socket}?db=0"

    def __enter__(self) -> RedisServer:
        """Raises KctlError with what to do."""
        if len(str(self._socket).encode()) > _MAX_SOCKET_PATH_BYTES:
            raise KctlError(f"{self._socket} is too long for a socket: name a shorter folder with --dir")
        self._directory.mkdir(parents=True, exist_ok=True)
        settings = {
            "port": "0",
            "unixsocket": str(self._socket),
            "unixsocketperm": "700",
            "dir": str(self._directory),
            "appendonly": "yes",
            "appendfsync": "always",
            "auto-aof-rewrite-min-size": "1gb",
            "save": "",
            "maxmemory-policy": "noeviction",
            "logfile": "redis.log",
        }
        words = [word for name, value in settings.items() for word in (f"--{name}", value)]
        self._process = subprocess.Popen(
            # Not killed at once: what the workers have in flight when the demo ends shall be stored.
            [*dies_with_parent("TERM"), "redis-server", *words],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            cwd=self._directory,
        )
        try:
            self._await_socket()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def _await_socket(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + START_SECONDS
        while not self._socket.exists():
            try:
                code = self._process.wait(_POLL_SECONDS)
            except subprocess.TimeoutExpired:
                code = None
            if code is not None or time.monotonic() > deadline:
                raise KctlError(f"redis-server does not start; its log is {self._directory / 'redis.log'}")
