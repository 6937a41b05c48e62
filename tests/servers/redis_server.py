"""A real redis-server on a Unix socket that syncs every write before it acknowledges it."""

from __future__ import annotations

import shutil
import socket
import subprocess
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from kctl.children import dies_with_parent
from tests.conftest import eventually, require_programs
from tests.processes import stopped

if TYPE_CHECKING:
    import redis

START_SECONDS = 30.0


def is_installed() -> bool:
    return shutil.which("redis-server") is not None


def require_redis() -> None:
    require_programs("redis-server", "redis-server")


class RedisServer:
    """A context manager with all files in `directory`. The server ends with the thread that started it. After `kill`,
    `start` recovers from the append-only file."""

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

    def start(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        command = [*dies_with_parent("TERM"), "redis-server", *self._words(), *self._options]
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True, cwd=self.directory)
        try:
            eventually(self._answers, START_SECONDS, f"redis-server answers; its log is {self.directory / 'redis.log'}")
        except BaseException:
            self.kill()
            raise

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
            self.socket.unlink(missing_ok=True)

    def frozen(self) -> AbstractContextManager[None]:
        """Meanwhile the kernel accepts connections, which get no answer."""
        assert self.pid is not None
        return stopped([self.pid])

    def __enter__(self) -> RedisServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

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

    def _answers(self) -> bool:
        """Asks without a client library, which would retry. An error counts as an answer."""
        assert self._process is not None
        assert self._process.poll() is None, (self.directory / "redis.log").read_text()
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(1.0)
            try:
                connection.connect(str(self.socket))
                connection.sendall(b"PING\r\n")
                greeting = connection.recv(64)
            except OSError:
                return False
        return bool(greeting) and not greeting.startswith(b"-LOADING")
