"""What a table needs of the place where its files are. delta-rs and Spark open it by themselves; this is for what
neither of them does: plans, footers, what batches have left.

Names are relative to the folder, with `/` between their parts, as they are on the disk: a log has them escaped.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Self

from kctl_agent.storage.limits import Free

FOLDER = "_kctl"
"""In the folder of a table, of plans; one that begins so is hidden from every engine."""


@dataclass(frozen=True, slots=True)
class FolderFile:
    """One file, by its name in the folder; `modified` by the place's clock; `stamp` changes with each write."""

    name: str
    size: int
    modified: float
    stamp: str


class Folder(ABC):
    """May be used by any thread. What fails raises OSError with one line as `strerror`, where nothing else is named."""

    uri: str
    """As delta-rs opens it."""
    options: dict[str, str] | None = None
    """Of delta-rs beside it."""
    local: Path | None = None
    """Where it is on this machine; None: it is not."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The last part of its path."""

    @property
    @abstractmethod
    def spark_uri(self) -> str:
        """As Spark opens it."""

    @abstractmethod
    def sibling(self, name: str) -> Self:
        """The one of this name in the same place."""

    @abstractmethod
    def subfolder(self, name: str) -> Self:
        """One of its own."""

    @abstractmethod
    def make(self) -> None:
        """Have it exist, so that it can be known later whether it was removed."""

    @abstractmethod
    def exists(self) -> bool:
        """Whether it was made, also where nothing was written into it."""

    @abstractmethod
    def check(self) -> None:
        """Before it is first written to. Raises StorageUnusable: it cannot be used now; TableRefused: nor ever."""

    def check_create(self) -> None:  # noqa: B027 - most places have what it takes
        """Before a table relies on `create`. Raises TableRefused: the place lacks what it takes."""

    @abstractmethod
    def holds_others(self, than: Collection[str]) -> bool:
        """Whether anything is in it beside these; also where it is no folder at all."""

    @abstractmethod
    def names(self, after: str = "") -> list[str]:
        """Of the files right in it that sort after this one; none where it is not there."""

    @abstractmethod
    def open(self, name: str) -> BinaryIO:
        """To be read in parts. Raises FileNotFoundError, OSError."""

    def read(self, name: str) -> bytes:
        """All that a file holds. Raises FileNotFoundError, OSError."""
        return self.read_stamped(name)[0]

    @abstractmethod
    def read_stamped(self, name: str) -> tuple[bytes, str]:
        """And its stamp. Raises FileNotFoundError, OSError."""

    @abstractmethod
    def write(self, name: str, content: bytes) -> None:
        """All at once: nobody ever reads a part of it."""

    @abstractmethod
    def create(self, name: str, content: bytes) -> bool:
        """Write it, all at once and past a power cut, where there is no such file; False: somebody else was first."""

    @abstractmethod
    def find(self, name: str) -> FolderFile | None:
        """None: there is no such file."""

    def stamps(self, names: Collection[str]) -> dict[str, str]:
        """Of those of these files that are there; all are in one folder."""
        return {file.name: file.stamp for file in map(self.find, names) if file is not None}

    @abstractmethod
    def files(self) -> Iterator[FolderFile]:
        """All that are in it and in folders below, but for empty ones in a store; none where it is not there."""

    @abstractmethod
    def remove(self, names: Iterable[str]) -> int:
        """These files, and folders that become empty but for FOLDER, where others write; how many, if known."""

    @abstractmethod
    def remove_all(self) -> None:
        """The folder and what is in it. Raises nothing: what is left is found by its plan."""

    @abstractmethod
    def explain(self, error: Exception) -> str:
        """What delta-rs reports of it, in one line."""

    def free(self) -> Free | None:
        """The room that is left; None: there is no limit that anybody knows of. Raises StorageUnusable."""
        return None

    @abstractmethod
    def sync(self, names: Iterable[str]) -> None:
        """What was written under these names, the names themselves, and all that are right in this folder, outlast a
        power cut from now on. Those that are not there any more are left out."""

    def sync_name(self) -> None:  # noqa: B027 - in an object store what is there stays
        """That there is this folder outlasts a power cut from now on."""

    def __str__(self) -> str:
        return self.uri
