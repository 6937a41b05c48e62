"""Reads the newest version of a table's log. If the log was read before, reads only the newer entries.

Between any two steps of a read, others may clean up the log or replace the table. Before delta-rs and Spark remove
entries, they write a checkpoint that includes them, and then write its version to `_last_checkpoint`. So if this file
is unchanged, all unread entries still exist.

Delta's writer for Spark checks that an entry's name is free, and then renames its own file to this name. If another
process writes the entry in between, the rename overwrites it. kctl notices the changed `FolderFile.stamp`.
"""

from collections.abc import Iterable
from typing import NoReturn

from kctl_agent.storage.base import StorageUnusable
from kctl_agent.storage.lake.delta.log import (
    LAST_CHECKPOINT,
    LOG,
    EntryMissing,
    LogFiles,
    LogUnreadable,
    entry_name,
    log_files,
    read_again,
)
from kctl_agent.storage.lake.delta.log_state import LogState
from kctl_agent.storage.lake.folder import Folder

MOST_ENTRIES = 200
"""If there are more entries, most of them are in a checkpoint, and reading starts again there."""


class CheckpointMoved(LogUnreadable):
    pass


class DeltaLogReader:
    """Reads one table's log. For one thread at a time."""

    def __init__(self, table: Folder) -> None:
        self._table = table
        self._state: LogState | None = None
        self._newest: tuple[str, str | None] = "", None
        self._pointer: str | None = None
        """The stamp of the pointer to the newest checkpoint, which is not above the last version read."""

    def is_there(self) -> bool:
        """Whether the log still has the last entry that was read. For any thread. Raises OSError."""
        name, stamp = self._newest
        return stamp is not None and stamp == self._stamp(name)

    def newest(self) -> LogState:
        """Reads the newest version, and makes other writers' entries durable. Raises NoTable, LogUnreadable, OSError,
        and StorageUnusable if an entry was overwritten. After an error, the next call reads the whole log again."""
        state, self._state = self._state, None  # a partly read state is not continued
        if state is None or not self._is_read_on(state):
            try:
                state = read_again(self._read, FileNotFoundError, EntryMissing, CheckpointMoved)
            except FileNotFoundError as error:
                raise LogUnreadable(f"{error.filename} is not there") from error
        self._state = state
        return state

    def _is_read_on(self, state: LogState, *, is_upon: bool = False) -> bool:
        """Reads newer entries into `state`. Returns False if the whole log must be read again.

        If the last entry of `state` has changed, returns False, because the log was replaced. With `is_upon` (kctl has
        just written the next entry), a change means that the last entry was overwritten: raises StorageUnusable.
        """
        before, (name, stamp) = state.version, self._newest
        if (stamp is None and not is_upon) or not state.advance(self._table, MOST_ENTRIES):
            return False
        read = {before: stamp} | {version: entry.stamp for version, entry in state.entries.items()}
        found = self._table.stamps([*map(entry_name, read), LAST_CHECKPOINT])
        if found.get(name) != stamp and not (is_upon and name in found):
            return False  # the table went back
        for version, stamp in read.items():
            if found.get(entry_name(version), stamp) != stamp:  # a missing one was cleaned up
                raise self._overwritten(version)
        if (pointer := found.get(LAST_CHECKPOINT)) != self._pointer:
            log = log_files(self._table)
            # Unread entries may be missing, or written again by a process that was frozen.
            if log.checkpoint > before:
                return False
            self._sync([LAST_CHECKPOINT, *log.checkpoint_files])
            self._pointer = pointer
        if state.version != before:
            self._sync(map(entry_name, state.unsynced))
            self._read_to(state)
        return True

    def _read(self) -> LogState:
        pointer = self._stamp(LAST_CHECKPOINT)
        state = LogState.read(self._table)
        if pointer != self._stamp(LAST_CHECKPOINT):
            raise CheckpointMoved("checkpoints of its log are written faster than it can be read")
        entries = map(entry_name, {state.log.checkpoint, *state.unsynced} - {-1})
        self._sync([LAST_CHECKPOINT, *state.log.checkpoint_files, *entries])
        self._table.subfolder(LOG).sync_name()
        self._table.sync_name()
        self._pointer = pointer
        self._read_to(state)
        return state

    def _read_to(self, state: LogState) -> None:
        name = entry_name(state.version)
        entry = state.entries.get(state.version)
        self._newest = name, self._stamp(name) if entry is None else entry.stamp
        state.unsynced.clear()

    def _overwritten(self, version: int) -> StorageUnusable:
        return StorageUnusable(
            f"another writer has overwritten version {version} of the table {self._table}, so messages stored in it "
            'are lost or read again: see "Other writers" in docs/storage.md'
        )

    def confirm(self, version: int, written: bytes) -> LogState:
        """Checks that the log has this entry. Returns the new state. Raises StorageUnusable, LogUnreadable, OSError."""
        state, self._state = self._state, None
        assert state is not None
        if not self._is_read_on(state, is_upon=True):
            self._refuse(version)
        entry = state.entries.get(version)
        if entry is not None and entry.content != hash(written):
            raise self._overwritten(version)
        self._state = state
        return state

    def _refuse(self, version: int) -> NoReturn:
        if self._is_unseen(version, log_files(self._table)):
            self._table.remove([entry_name(version)])
        raise StorageUnusable(f"the log of the table {self._table} was cleaned up or replaced in a commit")

    def _is_unseen(self, version: int, log: LogFiles) -> bool:
        if log.checkpoint < version:
            return log.checkpoint < version - 1 and version - 1 not in log.versions  # the entry is above a gap
        entry, checkpoint = self._table.find(entry_name(version)), self._table.find(log.checkpoint_files[0])
        # A checkpoint that is newer than the entry may include it.
        return entry is not None and checkpoint is not None and checkpoint.modified < entry.modified

    def _stamp(self, name: str) -> str | None:
        found = self._table.find(name)
        return None if found is None else found.stamp

    def _sync(self, names: Iterable[str]) -> None:
        # Other writers do not sync, and a damaged newest file makes the table unreadable.
        self._table.subfolder(LOG).sync(name.removeprefix(f"{LOG}/") for name in names)
