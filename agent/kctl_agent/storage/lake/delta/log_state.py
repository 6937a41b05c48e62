"""What a version of a Delta table demands of who writes it, and its `txn` actions, as the log has them.

Read here and not by delta-rs, which takes up the list of all files whenever it opens a table, goes on in its log or
has committed, and replays the log once more for each `txn` that is asked for. A batch needs no list of files: what it
costs is the same in a table of 100,000 files.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from kctl_agent.storage.lake.delta.commit_actions import ENGINE
from kctl_agent.storage.lake.delta.log import (
    CheckpointDamaged,
    EntryMissing,
    LogFiles,
    LogUnreadable,
    checkpoint_opened,
    entry_name,
    log_files,
    parsed,
    reading_log,
)

if TYPE_CHECKING:
    from kctl_agent.storage.lake.folder import Folder

__all__ = ["LogState", "NoTable"]

log = logging.getLogger(__name__)

KINDS = ("protocol", "metaData", "txn")
"""The actions that are kept."""
ENTRIES = 16
"""Of so many of the newest versions it is known whether their entries are still the ones that were read."""


class NoTable(Exception):
    """A folder without a log."""


class LogEntry(NamedTuple):
    """`content` is a hash of it."""

    stamp: str
    content: int


class LogState:
    """Of one version, until `advance`. For one thread at a time."""

    def __init__(self, log: LogFiles) -> None:
        self.log = log
        """What it was read from."""
        self.version = -1
        self.protocol: Mapping[str, Any] = {}
        self.metadata: Mapping[str, Any] = {}
        self._transactions: dict[str, int] = {}
        self.entries: dict[int, LogEntry] = {}
        """Of the newest versions, as they were read: others may write them over."""
        self.unsynced: list[int] = []
        """Versions that were read whose entries others have written, which sync none."""

    @classmethod
    def read(cls, table: Folder, below: int | None = None) -> LogState:
        """The newest version, by the newest checkpoint, below this version, that can be read. Raises NoTable,
        LogUnreadable, FileNotFoundError, OSError."""
        state = cls(log_files(table, below))
        try:
            state._replay(table)
        except CheckpointDamaged as damaged:
            checkpoint = state.log.newest_checkpoint
            with suppress(NoTable, EntryMissing):
                state = cls.read(table, checkpoint)
            if state.version < checkpoint:  # there are no entries any more for what it stands for
                raise
            log.warning("the log of %s is read without a checkpoint, for %s: move it away", table, damaged)
        return state

    def _replay(self, table: Folder) -> None:
        """From the newest checkpoint on. Raises NoTable, LogUnreadable, OSError."""
        log = self.log
        if not log.versions and log.checkpoint is None:
            raise NoTable
        for name in log.checkpoint_files:
            for kind, action in _of_checkpoint(table, name):
                self._take(kind, action)
        self.version = log.newest_checkpoint
        self.advance(table)
        if log.versions and self.version < log.versions[-1]:
            raise EntryMissing(self.version + 1)
        if not self.protocol or not self.metadata:
            raise LogUnreadable("its log has no protocol, or no schema")

    def advance(self, table: Folder, most: int | None = None) -> bool:
        """To the newest version; False: there are so many entries, or more. Raises LogUnreadable, OSError."""
        end = None if most is None else self.version + most
        while self.version != end:
            name = entry_name(self.version + 1)
            try:
                content, stamp = table.read_stamped(name)
            except FileNotFoundError:
                return True
            with reading_log(name):
                actions = list(parsed(content))
                found = list(_of_entry(actions))
                is_synced = any(action.get("commitInfo", {}).get("engineInfo") == ENGINE for action in actions)
            for kind, action in found:
                self._take(kind, action)
            self.version += 1
            if not is_synced:
                self.unsynced.append(self.version)
            self.entries[self.version] = LogEntry(stamp, hash(content))
            self.entries.pop(self.version - ENTRIES, None)
        return False

    def _take(self, kind: str, action: dict[str, Any]) -> None:
        if kind == "txn":
            self._transactions[action["appId"]] = action["version"]
        elif kind == "protocol":
            self.protocol = action
        else:
            self.metadata = action

    @property
    def id(self) -> str:
        return str(self.metadata["id"])

    @property
    def partition_columns(self) -> list[str]:
        return list(self.metadata.get("partitionColumns") or ())

    @property
    def partition_days(self) -> list[str]:
        """Those of them that are dates."""
        if not (columns := self.partition_columns):
            return []
        return [field["name"] for field in self.fields if field["name"] in columns and field["type"] == "date"]

    @property
    def configuration(self) -> dict[str, str]:
        return dict(self.metadata.get("configuration") or {})

    @property
    def fields(self) -> list[dict[str, Any]]:
        """Its columns, as Spark's JSON has them."""
        found: list[dict[str, Any]] = json.loads(self.metadata["schemaString"])["fields"]
        return found

    @property
    def features(self) -> set[str]:
        """Of the protocol, for readers and writers."""
        return {*(self.protocol.get("readerFeatures") or ()), *(self.protocol.get("writerFeatures") or ())}

    def transaction_version(self, name: str) -> int | None:
        """As `DeltaTable.transaction_version`."""
        return self._transactions.get(name)

    def transaction_names(self) -> list[str]:
        return list(self._transactions)


def _of_entry(actions: Iterable[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    for found in actions:
        for kind in KINDS:
            if (action := found.get(kind)) is not None:
                yield kind, _checked(kind, action)


def _of_checkpoint(table: Folder, name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    with checkpoint_opened(table, name) as file:
        kinds = [kind for kind in KINDS if kind in file.schema_arrow.names]
        for kind in kinds:  # one after the other: each row has one action, and of most of them only `add`
            for action in file.read(columns=[kind])[kind].drop_null().to_pylist():
                if action.get("appId" if kind == "txn" else "id" if kind == "metaData" else "minReaderVersion") is None:
                    continue  # a writer that has no nulls for structs
                if kind == "metaData":
                    action["configuration"] = dict(action.get("configuration") or ())
                yield kind, _checked(kind, action)


def _checked(kind: str, action: dict[str, Any]) -> dict[str, Any]:
    """What is kept of an action of Delta's log. Raises ValueError, TypeError, KeyError, AttributeError: it is none."""
    if kind == "txn":
        return {"appId": str(action["appId"]), "version": int(action["version"])}
    if kind == "metaData":
        _check_metadata(action)
        return action
    _check_texts(action, "readerFeatures", "writerFeatures")
    return {**action, **{name: int(action[name]) for name in ("minReaderVersion", "minWriterVersion")}}


def _check_metadata(action: dict[str, Any]) -> None:
    if not isinstance(action["id"], str):
        raise ValueError("the id of its table is no text")
    for field in json.loads(action["schemaString"])["fields"]:
        if not isinstance(field["name"], str) or not isinstance(field["type"], str | dict):
            raise ValueError("a column of its schema has no name, or no type")
    _check_texts(action, "partitionColumns")
    for name, text in (action.get("configuration") or {}).items():
        if not isinstance(text, str):
            raise ValueError(f"its configuration {name!r} is no text")


def _check_texts(action: dict[str, Any], *names: str) -> None:
    for name in names:
        if not isinstance(found := action.get(name) or [], list) or not all(isinstance(each, str) for each in found):
            raise ValueError(f"its {name} are no list of texts")
