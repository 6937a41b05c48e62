"""A real redis-server on a Unix socket that syncs every write before it acknowledges it."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from kctl.children import dies_with_parent
from kctl.errors import KctlError

if TYPE_CHECKING:
    import redis

START_SECONDS = 30.0
STOP_SECONDS = 10.0
_POLL_SECONDS = 0.05
_MAX_SOCKET_PATH_BYTES = 107


class RedisServer:
    """A context manager with all files in `directory`. After `kill`, `start` recovers from the append-only file. The
    server ends with the thread that started it."""

    def __init__(self, directory: Path, *options: str) -> None:
        """`options` are words of redis-server's command line, and override ours."""
        self.directory = directory
        self.socket = directory / "redis.sock"
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"unix://{self.socket}"

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def client(self) -> redis.Redis:
        import redis

        return redis.Redis(unix_socket_path=str(self.socket))

    def ended(self) -> int | None:
        """The exit code if it ended by itself, or minus the signal that ended it; None while it runs."""
        return self._process.poll() if self._process else None

    def start(self) -> None:
        """Returns when the server answers. Raises KctlError with the log's path if it does not."""
        if len(str(self.socket).encode()) > _MAX_SOCKET_PATH_BYTES:
            raise KctlError(f"{self.socket} is too long for a socket")
        self.directory.mkdir(parents=True, exist_ok=True)
        self._process = subprocess.Popen(
            [*dies_with_parent("TERM"), "redis-server", *self._words(), *self._options],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            cwd=self.directory,
        )
        try:
            self._until_it_answers()
        except BaseException:
            self.kill()
            raise

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
            self.socket.unlink(missing_ok=True)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """While frozen, the kernel accepts connections, and nothing answers."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def __enter__(self) -> RedisServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def _words(self) -> list[str]:
        settings = {
            "port": "0",
            "unixsocket": str(self.socket),
            "unixsocketperm": "700",
            "dir": str(self.directory),
            "appendonly": "yes",
            "appendfsync": "always",
            "auto-aof-rewrite-min-size": "1gb",
            "save": "",
            "maxmemory-policy": "noeviction",
            "logfile": "redis.log",
        }
        return [word for name, value in settings.items() for word in (f"--{name}", value)]

    def _until_it_answers(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + START_SECONDS
        while (greeting := self._greeting()).startswith(b"-LOADING") or not greeting:
            try:
                code = self._process.wait(_POLL_SECONDS)
            except subprocess.TimeoutExpired:
                code = None
            if code is not None or time.monotonic() > deadline:
                raise KctlError(f"redis-server does not start; its log is {self.directory / 'redis.log'}")

    def _greeting(self) -> bytes:
        """The answer to PING; empty while it does not listen. A demo may lack a client library, so this uses none."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(1.0)
            try:
                connection.connect(str(self.socket))
                connection.sendall(b"PING\r\n")
                return connection.recv(64)
            except OSError:
                return b""
