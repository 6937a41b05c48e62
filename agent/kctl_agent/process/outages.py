"""Outages of something outside: whether an error is one, and waiting for its end inside the process."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryFile
from typing import Final, TypeVar

from kctl_agent.kafka.errors import is_of_kafka
from kctl_agent.process.stats import ProcessStats
from kctl_agent.process.stop import StopRequest
from kctl_agent.replies.workers import Outside
from kctl_agent.storage.base import StorageUnusable

RETRY_SECONDS = (0.5, 1.0, 2.0, 5.0)
"""Back-off between tries. What is outside may come back at any time, and ten seconds later all is to be well."""

_PASSING: Final = frozenset(
    {
        errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN,
    }
)  # fmt: skip
"""Error numbers that may be over at the next try, without a change of the configuration."""

_PROBE_BYTES: Final = 1 << 16
"""Bytes written by a probe: more than a file system has left in blocks that are begun."""

T = TypeVar("T")


class Stopped(Exception):
    """A stop was asked for while something was waited for."""


def outage(error: BaseException) -> Outside | None:
    """Returns what is away, or cannot be used, where `error` came of that. None: to wait would not help."""
    if isinstance(error, StorageUnusable) and error.retriable:
        return "storage"
    if is_of_kafka(error) and type(error).__name__ != "KafkaConfigurationError":
        return "brokers"
    return "disk" if isinstance(error, OSError) and error.errno in _PASSING else None


def disk_error(folder: Path) -> str | None:
    """Returns why nothing can be written to this folder, in a sentence; None: it can be written."""
    try:
        with TemporaryFile(dir=folder) as file:
            file.write(bytes(_PROBE_BYTES))
            file.flush()
    except OSError as error:
        return f"{folder} cannot be written: {error.strerror}"
    return None


def until_it_works(
    step: Callable[[], T], stats: ProcessStats, stop: StopRequest, describe: Callable[[BaseException], str] = str
) -> T:
    """Returns what `step` returns, as soon as what it needs is there; what is waited for is published meanwhile. Raises
    Stopped: asked to stop, it is tried once; and what `step` raises that is no outage."""
    tries = 0
    while True:
        try:
            done = step()
        except Exception as error:
            outside = outage(error)
            if outside is None:
                raise
            stats.failing("step", describe(error), outside)
        else:
            stats.works("step")
            return done
        if stop.wait(RETRY_SECONDS[min(tries, len(RETRY_SECONDS) - 1)]):
            raise Stopped
        tries += 1
