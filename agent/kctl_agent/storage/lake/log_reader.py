"""The newest version of a table's log: read on from where it was last read to, as long as the log still is the one
that was read, and from its newest checkpoint otherwise.

A process may be frozen between any two steps, while others write checkpoints and clean up what lies below them, or
replace the table. Both engines write the pointer to a checkpoint (`_last_checkpoint`) before they remove an entry below
it: while the pointer is the one that was there before, no entry above what was read is missing.

On a local disk Delta's own for Spark overwrites an entry that comes between its check and its rename. Nobody can
prevent that here; the stamps of the newest entries show it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NoReturn

from kctl_agent.storage.base import StorageUnusable
from kctl_agent.storage.lake.log import LAST_CHECKPOINT, LOG, LogFiles, entry_name, log_files
from kctl_agent.storage.lake.log_state import LogState

if TYPE_CHECKING:
    from kctl_agent.storage.lake.folder import Folder

__all__ = ["LogReader"]


class LogReader:
    """Of one table. For one thread at a time."""

    def __init__(self, table: Folder) -> None:
        self._table = table
        self._state: LogState | None = None
        self._newest: tuple[str, str | None] | None = None
        """The entry of the version that was last read, and its stamp; None where it was cleaned up."""
        self._pointer: str | None = None
        """The stamp of the pointer to the newest checkpoint, which is not above the version that was last read."""

    def is_there(self) -> bool:
        """Whether the log has what was last read of it. By any thread. Raises OSError."""
        newest = self._newest
        return newest is not None and newest[1] is not None and newest[1] == self._stamp(newest[0])

    def newest(self) -> LogState:
        """What is read of the log is on the disk before anything is decided on it.

        Raises StorageUnusable: another writer has overwritten what was read, which is read anew then; NoTable,
        LogUnreadable, OSError.
        """
        state, self._state = self._state, None  # what is read in part is not gone on from
        if state is not None and not self.is_there():
            state = None
        if state is not None:
            self._check_overwritten(state)
        before = -1 if state is None else state.version
        if state is None or not self._advanced(state):
            state, before = self._read(), -1
        elif state.version != before:
            self._sync(map(entry_name, state.unsynced))
        if state.version != before:
            name = entry_name(state.version)
            self._newest = name, state.stamps.get(state.version) or self._stamp(name)
        state.unsynced.clear()
        self._state = state
        return state

    def _advanced(self, state: LogState) -> bool:
        """False: entries above it may have been removed, and one of them written anew by a process that was frozen."""
        before = state.version
        state.advance(self._table)
        if (pointer := self._stamp(LAST_CHECKPOINT)) != self._pointer:
            log = log_files(self._table)
            if log.newest_checkpoint > before:
                return False
            self._sync([LAST_CHECKPOINT, *log.checkpoint_files])
            self._pointer = pointer
        return True

    def _read(self) -> LogState:
        """From the newest checkpoint on."""
        while True:
            pointer = self._stamp(LAST_CHECKPOINT)
            state = LogState.read(self._table)
            log = log_files(self._table)
            if pointer == self._stamp(LAST_CHECKPOINT):
                break
        entries = map(entry_name, {log.newest_checkpoint, *state.unsynced} - {-1})
        self._sync([LAST_CHECKPOINT, *log.checkpoint_files, *entries])
        self._table.below(LOG).sync_name()
        self._table.sync_name()
        self._pointer = pointer
        return state

    def _check_overwritten(self, state: LogState) -> None:
        """Where the newest entry is the one that was read, the table has not gone back."""
        for version, stamp in state.stamps.items():
            if self._stamp(entry_name(version)) not in (stamp, None):  # None: it was cleaned up
                raise self._overwritten(version)

    def _overwritten(self, version: int) -> StorageUnusable:
        return StorageUnusable(
            f"another writer has overwritten version {version} of the table {self._table}, so what that had stored is "
            'lost or read again: see "Other writers" in docs/storage.md'
        )

    def confirm(self, version: int, written: bytes) -> LogState:
        """That the entry which was just written upon the version that was last read is seen by every reader; the newest
        version then.

        Raises StorageUnusable: it is not, or nobody knows; NoTable, LogUnreadable, OSError.
        """
        name = entry_name(version - 1)
        if self._newest != (name, stamp := self._stamp(name)):
            if stamp is None:
                self._refuse(version, log_files(self._table))
            self._state = None
            raise self._overwritten(version - 1)
        if self._pointer != self._stamp(LAST_CHECKPOINT):
            log = log_files(self._table)
            if log.newest_checkpoint >= version:
                self._refuse(version, log)
        state = self.newest()
        stamp = state.stamps.get(version)
        if stamp is not None and self._table.read_stamped(entry_name(version)) != (written, stamp):
            self._state = None
            raise self._overwritten(version)
        return state

    def _refuse(self, version: int, log: LogFiles) -> NoReturn:
        self._state = None
        if self._is_unseen(version, log):
            self._table.remove([entry_name(version)])
        raise StorageUnusable(f"the log of the table {self._table} was cleaned up or replaced in a commit")

    def _is_unseen(self, version: int, log: LogFiles) -> bool:
        """Whether an entry that we have written is certainly no part of the log: it lies below a checkpoint that is
        older, or above a gap. Of a checkpoint that is newer it may be a part."""
        if log.newest_checkpoint < version:
            return log.newest_checkpoint < version - 1 and version - 1 not in log.versions
        entry, checkpoint = self._table.find(entry_name(version)), self._table.find(log.checkpoint_files[0])
        return entry is not None and checkpoint is not None and checkpoint.modified < entry.modified

    def _stamp(self, name: str) -> str | None:
        """None: there is no such file."""
        found = self._table.find(name)
        return None if found is None else found.stamp

    def _sync(self, names: Iterable[str]) -> None:
        """Entries of other writers, and checkpoints, which delta-rs does not sync: a power cut that damages the newest
        one would make the whole table unreadable. What precedes a checkpoint was synced with it."""
        if self._table.needs_sync:
            self._table.below(LOG).sync(name.removeprefix(f"{LOG}/") for name in names)
