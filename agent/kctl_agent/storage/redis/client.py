"""The connection of a Redis storage: URL, keys, scripts, reconnects, and checks of the server."""

import logging
import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from kctl_agent.secrecy import read_private
from kctl_agent.storage.base import StorageMisconfigured, StorageUnusable
from kctl_agent.storage.limits import Free

log = logging.getLogger(__name__)
T = TypeVar("T")

REPLY_SECONDS = 30.0
RETRIES = 6
"""Retries after a broken connection. A call to a server that hangs is not retried, and ends after `REPLY_SECONDS`."""
FREE_SHARE = 0.1
RETRY_SECONDS = (0.05, 2.0)
"""About four seconds in total, as long as Redis takes to restart with a small AOF."""


def where(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("redis", "rediss", "unix"):
        raise StorageUnusable(
            "storage.url must start with redis://, rediss:// (TLS) or unix:// (a socket), "
            "such as redis://user@host:6379/0"
        )
    try:
        host, port = parts.hostname or "127.0.0.1", parts.port or 6379
        if "@" in parts.path and parts.scheme != "unix":
            raise ValueError
    except ValueError:  # its text may contain part of the password
        raise StorageUnusable(
            "storage.url cannot be read: it must be redis://user@host:port/database, with / ? # and @ of a password "
            "written as %2F %3F %23 and %40; or keep the password in storage.password_file"
        ) from None
    database = dict(pair.partition("=")[::2] for pair in parts.query.split("&")).get("db")
    if parts.scheme == "unix":
        return f"unix:{parts.path}?db={database or 0}"
    return f"{parts.scheme}://{host}:{port}/{parts.path.strip('/') or database or 0}"


def connect(url: str, password_file: Path | None, reply_seconds: float = REPLY_SECONDS) -> Any:
    """Returns a thread-safe client, which connects at first use. Raises StorageUnusable, StorageMisconfigured."""
    try:
        import redis
        from redis.backoff import ExponentialWithJitterBackoff
        from redis.retry import Retry
    except ImportError as error:
        raise StorageMisconfigured("a Redis storage needs redis-py: pip install redis") from error
    backoff = ExponentialWithJitterBackoff(cap=RETRY_SECONDS[1], base=RETRY_SECONDS[0])
    options: dict[str, Any] = {
        "retry": Retry(backoff, RETRIES, (redis.ConnectionError,)),
        "socket_timeout": reply_seconds,
        "client_name": f"kctl-{os.getpid()}",
    }
    if urlsplit(url).scheme != "unix":
        options |= {"socket_connect_timeout": 5.0, "socket_keepalive": True}
    if password_file is not None:
        try:
            options["password"] = read_private(password_file).strip()
        except (OSError, UnicodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not text"
            raise StorageUnusable(f"cannot read storage.password_file {password_file}: {reason}") from error
    try:
        return redis.Redis.from_url(url, **options)
    except ValueError as error:
        raise StorageUnusable(f"storage.url cannot be used: {error}") from None


@cache
def _source(name: str) -> str:
    folder = files("kctl_agent.storage.redis") / "lua"
    return "".join((folder / f"{each}.lua").read_text(encoding="utf-8") for each in ("prelude", name))


@contextmanager
def as_unusable(place: str) -> Iterator[None]:
    import redis

    try:
        yield
    except redis.AuthenticationError as error:
        raise StorageUnusable(f"{place} rejects the user or the password: {error}") from error
    except redis.exceptions.NoPermissionError as error:
        raise StorageUnusable(f"the ACL of {place} does not allow this user what kctl needs: {error}") from error
    except redis.RedisError as error:
        raise StorageUnusable(f"{place} cannot be used: {error}") from error


def check_server(client: Any, place: str) -> None:
    """Checks that a server is suitable, and warns if a restart could lose messages. Raises StorageUnusable."""
    info = client.info()
    version = tuple(int(part) for part in info["redis_version"].split(".")[:2])
    if version < (6, 2):
        raise StorageUnusable(f"{place} is Redis {info['redis_version']}; a storage needs 6.2")
    if info.get("role") == "slave":
        raise StorageUnusable(f"{place} is a replica, which cannot be written")
    policy = str(info.get("maxmemory_policy", "noeviction"))
    if policy.startswith("allkeys") and info.get("maxmemory"):
        raise StorageUnusable(
            f"{place} evicts keys when its memory is full (maxmemory-policy {policy}): "
            "messages would be lost; set it to noeviction"
        )
    if not info.get("aof_enabled"):
        log.warning("%s has no append-only file: a restart loses messages; set appendonly yes", place)
    elif (sync := _appendfsync(client)) not in (None, "always"):
        # During a background fsync, Redis answers up to two seconds before it writes (aof.c, flushAppendOnlyFile).
        log.warning("%s may lose the last seconds when it is killed (appendfsync %s): set always", place, sync)


def free_memory(client: Any, place: str) -> Free | None:
    """Returns the free part of `maxmemory`, or None if `maxmemory` is not set."""
    info = client.info("memory")
    most = int(info.get("maxmemory") or 0)
    if not most:
        return None
    # Redis compares this difference with maxmemory.
    used = int(info["used_memory"]) - int(info.get("mem_not_counted_for_evict") or 0)
    return Free(f"the memory of {place} (maxmemory)", max(most - used, 0), int(most * FREE_SHARE))


def _appendfsync(client: Any) -> str | None:
    import redis

    try:
        found = client.config_get("appendfsync")
    except redis.ResponseError:
        return None  # a hosted Redis does not let the user read it
    return next(iter(found.values()), None)


class RedisSession:
    """The keys, scripts and client of one storage. Thread-safe. An unpickled copy opens its own connection."""

    def __init__(self, url: str, prefix: str, password_file: Path | None, reply_seconds: float = REPLY_SECONDS) -> None:
        self.place = where(url)
        self.prefix = prefix
        self._url = url
        self._password_file = password_file
        self.reply_seconds = reply_seconds
        self._client: Any = None
        self._scripts: dict[str, Any] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "reply_seconds": REPLY_SECONDS, "_client": None, "_scripts": {}}

    @property
    def client(self) -> Any:
        """The client, connected at first use. Wrap calls in `as_unusable`. Raises StorageUnusable."""
        if self._client is None:
            self._client = connect(self._url, self._password_file, self.reply_seconds)
        return self._client

    def key(self, kind: str, which: object) -> str:
        return f"{self.prefix}{kind}:{which}"

    def replies(self, things: Iterable[T], ask: Callable[[Any, T], object]) -> list[Any]:
        """`ask(pipeline, thing)` adds the commands for one of `things`. Returns the replies to all commands."""
        with as_unusable(self.place), self.client.pipeline(transaction=False) as pipeline:
            for each in things:
                ask(pipeline, each)
            return list(pipeline.execute())

    def run(self, name: str, *args: object) -> Any:
        with as_unusable(self.place):
            return self._script(name)(keys=[self.prefix], args=args)

    def run_with(self, values: Mapping[str, bytes], seconds: int, name: str, *args: object) -> Any:
        """Sets the keys in `values` for `seconds` and runs a script, in one transaction. Returns the script's reply."""
        import redis

        own = self._script(name)
        with as_unusable(self.place):
            while True:
                with self.client.pipeline(transaction=True) as pipeline:
                    for key, value in values.items():
                        pipeline.set(key, value, ex=seconds)
                    pipeline.evalsha(own.sha, 1, self.prefix, *args)
                    try:
                        return pipeline.execute()[-1]
                    except redis.exceptions.NoScriptError:
                        self.client.script_load(_source(name))

    def _script(self, name: str) -> Any:
        if name not in self._scripts:
            self._scripts[name] = self.client.register_script(_source(name))
        return self._scripts[name]

    def run_once(self, name: str, *args: object) -> Any:
        """Runs a script whose change must not be made twice. By a token, the script recognizes a repeated call."""
        return self.run(name, uuid.uuid4().hex, *args)

    def server_time(self) -> float:
        """Returns the server's Unix time. Dead letters are dated by it, because the hosts' clocks may differ."""
        with as_unusable(self.place):
            seconds, microseconds = self.client.time()
        return float(seconds + microseconds / 1_000_000)

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
        self._client, self._scripts = None, {}
