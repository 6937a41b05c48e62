"""The folder of a table, with the operations that kctl itself needs. delta-rs and Spark open the folder themselves.
File names are relative to the folder, with `/`. Paths in the table's log are URL-encoded; these names are not."""

import errno
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Self, TypeVar

from kctl_agent.storage.limits import Free

FOLDER = "_kctl"  # holds plans; its prefix hides it from every engine
THREADS = 8
"""A journal combines concurrent syncs (400 files: 0.2 ms each instead of 4), and a store answers requests at once."""

A = TypeVar("A")
B = TypeVar("B")


def at_once(function: Callable[[A], B], files: Sequence[A]) -> list[B]:
    if len(files) == 1:  # to start a thread would take a quarter of a small commit's time
        return [function(files[0])]
    with ThreadPoolExecutor(THREADS) as threads:
        return list(threads.map(function, files))


def check_size(name: str, size: int, most_bytes: int | None) -> None:
    if most_bytes is not None and size > most_bytes:
        raise OSError(errno.EFBIG, f"it is larger than {most_bytes >> 20} MiB", name)


@dataclass(frozen=True, slots=True)
class FolderFile:
    """A file. `modified` is Unix time by the clock of the file system or store. `stamp` changes with each write."""

    name: str
    size: int
    modified: float
    stamp: str


class Folder(ABC):
    """A table's folder, for any thread. Most failures raise OSError with a one-line `strerror`."""

    uri: str
    options: dict[str, str] | None = None
    local: Path | None = None  # the path on this machine; None if the folder is elsewhere

    @property
    @abstractmethod
    def name(self) -> str: ...

    @property
    @abstractmethod
    def spark_uri(self) -> str: ...

    @abstractmethod
    def sibling(self, name: str) -> Self: ...

    @abstractmethod
    def subfolder(self, name: str) -> Self: ...

    @abstractmethod
    def make(self) -> None:
        """Creates the folder."""

    @abstractmethod
    def exists(self) -> bool:
        """Whether the folder exists, even if it is empty."""

    @abstractmethod
    def check(self) -> None:
        """Checks the folder before the first write. Raises StorageUnusable, or TableRefused if it can never be used."""

    def check_create(self) -> None:  # noqa: B027 - most folders need no check
        """Checks that `create` works in this folder. Raises TableRefused."""

    @abstractmethod
    def holds_others(self, than: Collection[str]) -> bool: ...

    @abstractmethod
    def names(self, after: str = "") -> list[str]:
        """Returns names of files directly in this folder that sort after `after`. A missing folder has no names."""

    @abstractmethod
    def open(self, name: str) -> BinaryIO: ...

    def read(self, name: str) -> bytes:
        return self.read_stamped(name)[0]

    @abstractmethod
    def read_stamped(self, name: str, most_bytes: int | None = None) -> tuple[bytes, str]:
        """Returns a file's content and stamp. Raises OSError if the file is larger than `most_bytes`."""

    @abstractmethod
    def write(self, name: str, content: bytes) -> None:
        """Writes a file atomically."""

    @abstractmethod
    def create(self, name: str, content: bytes) -> bool:
        """Creates a file atomically and durably. Returns False if it already exists."""

    @abstractmethod
    def find(self, name: str) -> FolderFile | None: ...

    def stamps(self, names: Collection[str]) -> dict[str, str]:
        """Returns the stamps of the files that exist. All `names` must be in one folder."""
        return {file.name: file.stamp for file in map(self.find, names) if file is not None}

    @abstractmethod
    def files(self) -> Iterator[FolderFile]:
        """Yields all files, also in subfolders. A missing folder has no files. Skips empty S3 objects."""

    @abstractmethod
    def remove(self, names: Iterable[str]) -> int:
        """Removes files, and folders that become empty. Returns how many it removed (S3: how many it was given)."""

    @abstractmethod
    def remove_all(self) -> None:
        """Removes the folder. Ignores errors, because `sweep` or `vacuum` removes leftovers later."""

    @abstractmethod
    def explain(self, error: Exception) -> str: ...

    def free(self) -> Free | None:
        return None

    @abstractmethod
    def sync(self, names: Iterable[str]) -> None:
        """Makes these files, their folders and this folder durable. Ignores missing files."""

    def sync_name(self) -> None:  # noqa: B027 - an object store needs no sync
        ...

    def __str__(self) -> str:
        return self.uri
