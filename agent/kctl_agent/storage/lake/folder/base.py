"""The place of a table's files.

delta-rs and Spark open it themselves; this is for the rest: plans, footers, leftovers of batches. Names are relative to
the folder, with `/`, unescaped (a log has them escaped).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Self

from kctl_agent.storage.limits import Free

FOLDER = "_kctl"
"""The folder of plans in a table's folder; its prefix hides it from every engine."""


@dataclass(frozen=True, slots=True)
class FolderFile:
    """A file, by its name in the folder; `modified` by the place's clock; `stamp` changes with each write."""

    name: str
    size: int
    modified: float
    stamp: str


class Folder(ABC):
    """For any thread. Unless documented otherwise, failures raise OSError with one line as `strerror`."""

    uri: str
    """The URI for delta-rs."""
    options: dict[str, str] | None = None
    """Further options for delta-rs."""
    local: Path | None = None
    """The path on this machine; None: it is elsewhere."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The last part of its path."""

    @property
    @abstractmethod
    def spark_uri(self) -> str:
        """The URI for Spark."""

    @abstractmethod
    def sibling(self, name: str) -> Self:
        """The folder of this name in the same place."""

    @abstractmethod
    def subfolder(self, name: str) -> Self:
        """A folder inside this one."""

    @abstractmethod
    def make(self) -> None:
        """Creates the folder, so that its removal can be noticed later."""

    @abstractmethod
    def exists(self) -> bool:
        """Whether it was created, even if it is empty."""

    @abstractmethod
    def check(self) -> None:
        """Checks the place before its first write. Raises StorageUnusable: unusable now; TableRefused: never usable."""

    def check_create(self) -> None:  # noqa: B027 - most places have what it takes
        """Checks the place before a table relies on `create`. Raises TableRefused: the place cannot do it."""

    @abstractmethod
    def holds_others(self, than: Collection[str]) -> bool:
        """Whether it contains anything else, or is not a folder at all."""

    @abstractmethod
    def names(self, after: str = "") -> list[str]:
        """Names of the files directly in it that sort after this one; empty if it does not exist."""

    @abstractmethod
    def open(self, name: str) -> BinaryIO:
        """Opens a file to read it in parts. Raises FileNotFoundError, OSError."""

    def read(self, name: str) -> bytes:
        """Returns a file's content. Raises FileNotFoundError, OSError."""
        return self.read_stamped(name)[0]

    @abstractmethod
    def read_stamped(self, name: str) -> tuple[bytes, str]:
        """Returns a file's content and stamp. Raises FileNotFoundError, OSError."""

    @abstractmethod
    def write(self, name: str, content: bytes) -> None:
        """Writes a file atomically."""

    @abstractmethod
    def create(self, name: str, content: bytes) -> bool:
        """Writes a file atomically and durably, if it does not exist; False: another writer was first."""

    @abstractmethod
    def find(self, name: str) -> FolderFile | None:
        """None: there is no such file."""

    def stamps(self, names: Collection[str]) -> dict[str, str]:
        """Returns stamps of these files, if they exist; all are in one folder."""
        return {file.name: file.stamp for file in map(self.find, names) if file is not None}

    @abstractmethod
    def files(self) -> Iterator[FolderFile]:
        """Returns all files in it and in its subfolders, except empty ones in a store; empty if it does not exist."""

    @abstractmethod
    def remove(self, names: Iterable[str]) -> int:
        """Removes these files, and folders that become empty (except FOLDER, where others write); returns their number,
        if known."""

    @abstractmethod
    def remove_all(self) -> None:
        """Removes the folder and its content. Raises nothing: leftovers are found by their plan."""

    @abstractmethod
    def explain(self, error: Exception) -> str:
        """Returns delta-rs' error for it in one line."""

    def free(self) -> Free | None:
        """The free space; None: there is no known limit. Raises StorageUnusable."""
        return None

    @abstractmethod
    def sync(self, names: Iterable[str]) -> None:
        """Makes the files of these names, the names themselves and all names directly in this folder durable.

        Ignores files that no longer exist.
        """

    def sync_name(self) -> None:  # noqa: B027 - in an object store what is there stays
        """Makes the existence of this folder durable."""

    def __str__(self) -> str:
        return self.uri
