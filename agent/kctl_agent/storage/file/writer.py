"""Stores chunks of many partitions in a file storage, in one transaction. Executor tasks use it.

SQLite makes waiting writers sleep up to 100 ms between tries. So kctl's writers wait for a kernel lock on the folder.
After the task, a thread copies the write-ahead log into the file (`checkpoint`), so that no put waits for the copy.
"""

import os
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

from kctl_agent.storage.base import StorageUnusable, Writer
from kctl_agent.storage.block import Block
from kctl_agent.storage.chunk import Chunk, Put
from kctl_agent.storage.file import offset_table
from kctl_agent.storage.file.checkpoint import begin_copy, in_turn
from kctl_agent.storage.file.log import Log, noting_disk_errors, recover
from kctl_agent.storage.file.queue_table import MachineClock, insert
from kctl_agent.storage.file.schema import connect, transaction
from kctl_agent.storage.put_rules import cut, judged, skipped

COPY_BYTES = 16 << 20

SYNC_BYTES = 8 << 20

_uncopied: Counter[Path] = Counter()


class FileWriter(Writer):
    def __init__(self, path: Path, clock: MachineClock, block_messages: int, block_bytes: int, codec: str) -> None:
        self._path = path
        self._clock = clock
        self._block_messages = block_messages
        self._block_bytes = block_bytes
        self._codec = codec
        self._unsynced = 0
        recover(path)
        with ExitStack() as resources:
            self._folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
            resources.callback(os.close, self._folder)
            self._db = resources.enter_context(closing(connect(path)))
            self._log = resources.enter_context(closing(Log(self._db, path)))
            self._resources = resources.pop_all()

    def put_all(self, chunks: Sequence[Chunk]) -> list[Put]:
        # A block is encoded just before it is written, so that it is still in the CPU cache.
        blocks: list[Iterable[Block]] = [self._cut(chunk, 0) for chunk in chunks]
        if self._codec != "none":  # compressing takes longer than writing, so it must not hold the lock
            blocks = [list(each) for each in blocks]
        try:
            with noting_disk_errors(self._path), in_turn(self._folder), transaction(self._db):
                puts = [self._put(chunk, each) for chunk, each in zip(chunks, blocks, strict=True)]
        except sqlite3.Error as error:
            raise StorageUnusable(f"{_names(chunks)} could not be stored in {self._path}: {error}") from error
        self._count(sum(put.bytes for put in puts))
        return puts

    def _put(self, chunk: Chunk, blocks: Iterable[Block]) -> Put:
        stored = judged(chunk, offset_table.one(self._db, chunk.tp))
        skip = skipped(chunk, stored)
        written = insert(self._db, self._cut(chunk, skip) if skip else blocks, self._clock.wall())
        offset_table.advance(self._db, stored, chunk.end)
        return Put(len(chunk.columns) - skip, skip, written)

    def _count(self, written: int) -> None:
        _uncopied[self._path] += written
        self._unsynced += written
        if self._unsynced >= SYNC_BYTES:
            self._unsynced = 0
            self._log.begin_sync()

    def close(self) -> None:
        try:
            with noting_disk_errors(self._path):
                self._log.sync()
        except (sqlite3.Error, OSError) as error:
            raise StorageUnusable(f"the data stored in {self._path} could not be synced: {error}") from error
        finally:
            self._resources.close()
        if _uncopied[self._path] >= COPY_BYTES and begin_copy(self._path):
            _uncopied[self._path] = 0

    def _cut(self, chunk: Chunk, skip: int) -> Iterator[Block]:
        return cut(chunk, skip, self._block_messages, self._block_bytes, self._codec)


def _names(chunks: Sequence[Chunk]) -> str:
    first = f"{chunks[0].topic}-{chunks[0].partition}"
    return first if len(chunks) == 1 else f"{first} and {len(chunks) - 1} more"
