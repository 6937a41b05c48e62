"""One storage in a Redis: its keys, its scripts, and a client made at first use."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kctl_agent.storage.redis.client import REPLY_SECONDS, as_unusable, connect, script, where


class RedisSession:
    """The keys and scripts of one storage. For any thread. An unpickled copy connects again."""

    def __init__(self, url: str, prefix: str, password_file: Path | None, reply_seconds: float = REPLY_SECONDS) -> None:
        self.place = where(url)
        self.prefix = prefix
        self._url = url
        self._password_file = password_file
        self.reply_seconds = reply_seconds
        self._client: Any = None
        self._scripts: dict[str, Callable[..., Any]] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "reply_seconds": REPLY_SECONDS, "_client": None, "_scripts": {}}

    @property
    def client(self) -> Any:
        """The client. Wrap its errors in `as_unusable`. Raises StorageUnusable."""
        if self._client is None:
            self._client = connect(self._url, self._password_file, self.reply_seconds)
        return self._client

    def key(self, kind: str, which: object) -> str:
        return f"{self.prefix}{kind}:{which}"

    def run(self, name: str, *args: object) -> Any:
        if name not in self._scripts:
            self._scripts[name] = script(self.client, name)
        with as_unusable(self.place):
            return self._scripts[name](keys=[self.prefix], args=args)

    def run_once(self, name: str, *args: object) -> Any:
        """The script's first argument is a token, by which it recognizes a call repeated by redis-py."""
        return self.run(name, uuid.uuid4().hex, *args)

    def server_time(self) -> float:
        """By the server's clock, which dates dead letters and may differ from the hosts'."""
        with as_unusable(self.place):
            seconds, microseconds = self.client.time()
        return float(seconds + microseconds / 1_000_000)

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
        self._client, self._scripts = None, {}
