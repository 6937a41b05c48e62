"""One storage in a Redis as the rest talks to it: its keys, its scripts, and a client that is made when it is used."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kctl_agent.storage.redis.client import REPLY_SECONDS, as_unusable, connect, script, where


class RedisSession:
    """May be used from any thread. Pickled, it connects anew."""

    def __init__(self, url: str, prefix: str, password_file: Path | None, reply_seconds: float = REPLY_SECONDS) -> None:
        """It connects with the first call. Raises StorageUnusable: not the URL of a Redis."""
        self.place = where(url)
        """The URL without its credentials."""
        self.prefix = prefix
        self._url = url
        self._password_file = password_file
        self.reply_seconds = reply_seconds
        """How long a reply is waited for. An executor, which gets a copy with its task, waits as long as is usual."""
        self._client: Any = None
        self._scripts: dict[str, Callable[..., Any]] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "reply_seconds": REPLY_SECONDS, "_client": None, "_scripts": {}}

    @property
    def client(self) -> Any:
        """Of redis-py; its errors are for `as_unusable`. Raises StorageUnusable."""
        if self._client is None:
            self._client = connect(self._url, self._password_file, self.reply_seconds)
        return self._client

    def key(self, kind: str, which: object) -> str:
        return f"{self.prefix}{kind}:{which}"

    def run(self, name: str, *args: object) -> Any:
        """A script of `lua/`. Raises StorageUnusable."""
        if name not in self._scripts:
            self._scripts[name] = script(self.client, name)
        with as_unusable(self.place):
            return self._scripts[name](keys=[self.prefix], args=args)

    def run_once(self, name: str, *args: object) -> Any:
        """A script whose first argument is a token, by which a call that redis-py repeats is known."""
        return self.run(name, uuid.uuid4().hex, *args)

    def server_time(self) -> float:
        """Unix seconds, by the clock that dates dead letters: those of the hosts may differ from it."""
        with as_unusable(self.place):
            seconds, microseconds = self.client.time()
        return float(seconds + microseconds / 1_000_000)

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
        self._client, self._scripts = None, {}
