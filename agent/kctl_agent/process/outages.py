"""Recognizes outages of external systems, and retries until they end."""

import errno
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryFile
from typing import Final, TypeVar

from kctl_agent.errors import RegistryUnusable
from kctl_agent.kafka.errors import is_of_kafka
from kctl_agent.process.stats import ProcessStats
from kctl_agent.process.stop import StopRequest
from kctl_agent.replies.workers import Outside
from kctl_agent.storage.base import StorageUnusable

RETRY_SECONDS = (0.5, 1.0, 2.0, 5.0)
"""At most ten seconds after an outage ends, everything should be healthy again."""

_PASSING: Final = frozenset(
    {
        errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN,
    }
)  # fmt: skip


T = TypeVar("T")


class Stopped(Exception):
    """A stop was requested while waiting."""


def outage(error: BaseException) -> Outside | None:
    """Returns the external system whose outage caused an error, or None if waiting would not help."""
    if isinstance(error, StorageUnusable) and error.retriable:
        return "storage"
    if isinstance(error, RegistryUnusable):
        return "registry"
    if is_of_kafka(error) and type(error).__name__ != "KafkaConfigurationError":
        return "brokers"
    return "disk" if isinstance(error, OSError) and error.errno in _PASSING else None


def disk_error(folder: Path) -> str | None:
    try:
        with TemporaryFile(dir=folder) as file:
            file.write(bytes(1 << 16))  # more room than a full file system may have in partly used blocks
            file.flush()
    except OSError as error:
        return f"{folder} cannot be written: {error.strerror}"
    return None


def until_it_works(
    step: Callable[[], T], stats: ProcessStats, stop: StopRequest, describe: Callable[[BaseException], str] = str
) -> T:
    """Runs `step`, and repeats it in an outage. Raises all other errors, and Stopped if a stop is requested."""
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
