"""A real redis-server for a test, on a Unix socket in a short folder."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis

__all__ = ["RedisServer", "is_installed", "require_redis"]


def is_installed() -> bool:
    return shutil.which("redis-server") is not None


def require_redis() -> None:
    """A test that needs it is skipped where it is missing, and fails in CI."""
    if not is_installed():
        reason = "redis-server is missing: apt-get install redis-server"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)


class RedisServer:
    """Started by `start`, killed by `kill`, and then started again with what its append-only file holds."""

    def __init__(self, directory: Path, eventually: Callable[..., object], *options: str) -> None:
        self.socket = directory / "redis.sock"
        self.directory = directory
        self._eventually = eventually
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"unix://{self.socket}"

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def client(self) -> redis.Redis:
        """To look into it from outside; a context manager."""
        return redis.Redis(unix_socket_path=str(self.socket))

    def start(self) -> None:
        with (self.directory / "redis.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    "redis-server", "--port", "0", "--unixsocket", str(self.socket), "--dir", str(self.directory),
                    "--save", "", "--appendonly", "yes", "--appendfsync", "always", *self._options,
                ],
                stdout=log,
                stderr=log,
            )  # fmt: skip
        self._eventually(self._answers, what="redis-server does not answer")

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.directory / "redis.log").read_text()
        with redis.Redis(unix_socket_path=str(self.socket), retry=None) as client:
            try:
                return bool(client.ping())
            except redis.AuthenticationError:
                return True
            except redis.RedisError:
                return False

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Connections are accepted, by the kernel, and nothing is answered."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL. With `appendfsync always` what it has acknowledged is in its append-only file."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
            self.socket.unlink(missing_ok=True)
