"""The contract between `TableStorage` and the formats that a table may have.

A format holds numbers by name (`txn` actions in Delta's words) in the same commit as files. A reader finds them
again, for as long as the table is there, and of two commits that were decided on the same numbers it takes
one. That is all that stored offsets need (`offsets`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from kctl_agent.storage.lake.files import DataFile
from kctl_agent.storage.lake.folder import Folder
from kctl_agent.storage.room import TableCounts

__all__ = ["Counter", "Table", "TableState"]


class TableState(Protocol):
    """A version of a table: what it holds beside its files."""

    @property
    def version(self) -> int:
        """Larger with every commit."""

    @property
    def id(self) -> str:
        """Of the table; one that takes its place has another."""

    def transaction_version(self, name: str) -> int | None:
        """The number that the last commit with this name has set."""

    def transaction_names(self) -> list[str]: ...


class Table(Protocol):
    """May be used by any thread, by one at a time."""

    folder: Folder
    """In which files of batches are."""
    commits_retried: int
    """How often others got ahead of a commit in a way that had it decided anew."""

    def prepare(self) -> None:
        """Check what is there; the table itself is made by `fit`.

        Raises:
            StorageUnusable: the place is missing or cannot be used, or the folder holds something else.
            TableRefused: a table, or a place, that cannot be written to.
        """

    def fit(self, schema: str, partition_by: Sequence[str], *, merge_schema: bool = False) -> None:
        """Make sure that the table takes rows of this schema (Spark's JSON); one that does not exist is made, with
        `merge_schema` columns that it lacks too. Raises TableRefused, StorageUnusable."""

    def state(self) -> AbstractContextManager[TableState]:
        """The newest version, which stays the one that is read until the end of the block. Raises StorageUnusable."""

    def commit(
        self,
        id_: str,
        check: Callable[[TableState], None],
        transactions: Mapping[str, int],
        files: Sequence[DataFile] = (),
    ) -> None:
        """Add these files and set these numbers, all or nothing. `check` is called with the version that is written
        upon, and raises if it is not what the commit was decided on; nobody commits between the two.

        Raises:
            what `check` raises.
            TableRefused: others have changed the table, and what was written does not fit it any more.
            StorageUnusable: it is not known to be written, or the table is not `id_` any more.
        """

    def errors(self) -> AbstractContextManager[None]:
        """Where something of the table is used. Raises StorageUnusable."""

    def was_added(self, folder: str, versions: range) -> bool | None:
        """Whether a commit of these versions has added files of this folder; None: nobody can know any more. Raises
        OSError, StorageUnusable."""


class Counter(Protocol):
    """Counts a table anew when it has another version. For one thread."""

    def last(self) -> TableCounts | None:
        """As last counted; None of a table that is not there yet, or cannot be read. Waits for no commit."""
