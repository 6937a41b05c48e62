"""The protocol, schema and `txn` actions of a version of a Delta table. kctl reads them from the log without the list
of all files. So a table of 100,000 files does not slow a batch down."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

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
from kctl_agent.storage.lake.folder import Folder

log = logging.getLogger(__name__)

KINDS: Final = {"protocol": "minReaderVersion", "metaData": "id", "txn": "appId"}
ENTRIES = 16


class NoTable(Exception):
    pass


class LogEntry(NamedTuple):
    stamp: str
    content: int


class LogState:
    """The table at one version of its log. For one thread at a time."""

    def __init__(self, log: LogFiles) -> None:
        self.log = log
        self.version = -1
        self.protocol: Mapping[str, int] = {}
        self.features: set[str] = set()
        self.metadata: Mapping[str, Any] = {}
        self.id = ""
        self.partition_columns: list[str] = []
        self.configuration: dict[str, str] = {}
        self.fields: list[dict[str, Any]] = []
        self.transactions: dict[str, int] = {}
        self.entries: dict[int, LogEntry] = {}
        self.unsynced: list[int] = []  # versions of other writers, who do not sync

    @classmethod
    def read(cls, table: Folder, below: int | None = None) -> LogState:
        """Reads the newest version. Skips damaged checkpoints. Raises NoTable, LogUnreadable, OSError."""
        state = cls(log_files(table, below))
        try:
            state._replay(table)
        except CheckpointDamaged as damaged:
            checkpoint = state.log.checkpoint
            with suppress(NoTable, EntryMissing):
                state = cls.read(table, checkpoint)
            if state.version < checkpoint:  # the entries it replaced no longer exist
                raise
            log.warning("the log of %s is read without a checkpoint, for %s: move it away", table, damaged)
        return state

    def _replay(self, table: Folder) -> None:
        log = self.log
        if log.newest < 0:
            raise NoTable
        for name in log.checkpoint_files:
            self._read_checkpoint(table, name)
        self.version = log.checkpoint
        self.advance(table)
        if self.version < log.newest:
            raise EntryMissing(self.version + 1)
        if not self.protocol or not self.metadata:
            raise LogUnreadable("its log has no protocol, or no schema")

    def advance(self, table: Folder, most: int | None = None) -> bool:
        end = None if most is None else self.version + most
        while self.version != end:
            name = entry_name(self.version + 1)
            try:
                content, stamp = table.read_stamped(name)
            except FileNotFoundError:
                return True
            with reading_log(name):
                actions = list(parsed(content))
                for kind, action in ((kind, each.get(kind)) for each in actions for kind in KINDS):
                    if action is not None:
                        self._take(kind, action)
                is_synced = any(action.get("commitInfo", {}).get("engineInfo") == ENGINE for action in actions)
            self.version += 1
            if not is_synced:
                self.unsynced.append(self.version)
            self.entries[self.version] = LogEntry(stamp, hash(content))
            self.entries.pop(self.version - ENTRIES, None)
        return False

    def _read_checkpoint(self, table: Folder, name: str) -> None:
        with checkpoint_opened(table, name) as file:
            for kind in [each for each in KINDS if each in file.schema_arrow.names]:
                # One kind at a time: each row has one action, usually `add`.
                for action in file.read(columns=[kind])[kind].drop_null().to_pylist():
                    if action.get(KINDS[kind]) is not None:  # some writers have no null structs
                        self._take(kind, action)

    def _take(self, kind: str, action: dict[str, Any]) -> None:
        if kind == "txn":
            self.transactions[str(action["appId"])] = int(action["version"])
        elif kind == "protocol":
            self.protocol = {name: int(action[name]) for name in ("minReaderVersion", "minWriterVersion")}
            self.features = {*_texts(action.get("readerFeatures")), *_texts(action.get("writerFeatures"))}
        else:
            self.metadata = action
            self.partition_columns = _texts(action.get("partitionColumns"))
            self.configuration = dict(action.get("configuration") or ())
            self.fields = json.loads(action["schemaString"])["fields"]
            self.id, *_ = _texts([action["id"], *self.configuration.values(), *(each["name"] for each in self.fields)])
            if not all(isinstance(each["type"], str | dict) for each in self.fields):
                raise TypeError("a column of its schema has no type")

    @property
    def partition_days(self) -> list[str]:
        days = [field["name"] for field in self.fields if field["type"] == "date"]
        return [name for name in days if name in self.partition_columns]


def _texts(found: Any) -> list[str]:
    if not isinstance(found or [], list) or not all(isinstance(each, str) for each in found or ()):
        raise TypeError("texts were expected, but found was something else")
    return list(found or ())
