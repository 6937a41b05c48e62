"""A storage in one SQLite file, the default. Network file systems are not supported: their locks are unreliable.

With `synchronous=NORMAL`, a power cut can undo the last transactions. So kctl syncs the write-ahead log when it closes
a writer, and in sessions with `is_durable`.
"""

import os
import sqlite3
import threading
import time
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any

from kctl_agent.errors import StorageError
from kctl_agent.message import Message
from kctl_agent.storage.ack_rules import given_up, judge, opened
from kctl_agent.storage.base import Storage, StorageUnusable, Writer
from kctl_agent.storage.block import Block
from kctl_agent.storage.chunk import NONE_STORED, Advance, Binding, StoredOffset, StoredOffsets, TopicPartition
from kctl_agent.storage.claim import NONE_DEAD, Claim, DeadLetter, DeadLetterGroup, Errors, Settled
from kctl_agent.storage.file import dead_letter_table, offset_table, queue_table
from kctl_agent.storage.file.checkpoint import begin_copy
from kctl_agent.storage.file.log import Log, noting_disk_errors, recover, sync_failures
from kctl_agent.storage.file.queue_table import MachineClock
from kctl_agent.storage.file.schema import connect, create, transaction
from kctl_agent.storage.file.writer import FileWriter
from kctl_agent.storage.limits import Free, StorageStats
from kctl_agent.storage.numbered_dead_letters import NumberedDeadLetters, Place
from kctl_agent.storage.put_rules import judged, judged_at_start, next_version, refuse_moved, refuse_other
from kctl_agent.storage.selection import EVERYTHING, INDEXED, Selection

LONG_SECONDS = 1.0
"""How often to retry copying a log that stays long because a reader uses an old snapshot."""

_INHERITED: list[sqlite3.Connection] = []
"""Connections of a parent process, which must not even be closed here (https://sqlite.org/howtocorrupt.html, 2.6)."""


@dataclass(eq=False, repr=False)
class FileStorage(NumberedDeadLetters, Storage):
    counted = INDEXED | {"tries_from", "tries_to", "offset_from", "offset_to", "traceback"}

    path: Path
    clock: MachineClock = field(default=MachineClock(), kw_only=True)

    def __post_init__(self) -> None:
        self.path = self.path.absolute()
        self._db: sqlite3.Connection | None = None
        self._log: Log | None = None
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._file: tuple[int, int] | None = None

    def __del__(self) -> None:
        if getattr(self, "_db", None) is not None and self._pid == os.getpid():
            self._forget()

    def __reduce__(self) -> tuple[Any, ...]:
        made = partial(type(self), **{each.name: getattr(self, each.name) for each in fields(self) if each.kw_only})
        return made, (self.path,), {"_file": self._file}

    @property
    def identity(self) -> str:
        return f"file:{self.path}"

    def prepare(self) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageUnusable(f"cannot make the folder {self.path.parent}: {error.strerror}") from error
        with self._lock, self._as_unusable():
            recover(self.path)
            with closing(connect(self.path, "rwc")) as db:
                create(db, self.path)

    def bind(self, owner: Binding, *, take_over: bool = False) -> str:
        with self._session(is_durable=True) as db, transaction(db):
            id_, before = offset_table.bound(db)
            refuse_other(self.identity, owner, before, take_over)
            if before != owner:
                id_ = id_ or uuid.uuid4().hex
                offset_table.bind(db, id_, owner.known_from(before))
        return id_

    def stored_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, StoredOffset]:
        with self._session(is_durable=True) as db:  # the caller may commit it to Kafka
            return offset_table.read(db, partitions)

    def init_offsets(self, stored_offsets: Collection[StoredOffset], seen: StoredOffsets = NONE_STORED) -> None:
        with self._session(is_durable=True) as db, transaction(db):
            before = offset_table.read(db, [stored.tp for stored in stored_offsets])
            for stored in stored_offsets:
                refuse_moved(stored.tp, before.get(stored.tp), seen.get(stored.tp))
            offset_table.write(db, [next_version(stored, seen.get(stored.tp)) for stored in stored_offsets])

    def advance_offsets(self, advances: Collection[Advance]) -> None:
        with self._session(is_durable=True) as db, transaction(db):
            before = offset_table.read(db, [each.tp for each in advances])
            for each in advances:
                offset_table.advance(db, judged(each, before.get(each.tp)), each.end)

    def writer(self) -> Writer:
        if self._file not in (None, self._found()):
            raise StorageUnusable(f"the file {self.path} was replaced since this batch was planned")
        with self._as_unusable():
            return FileWriter(self.path, self.clock, self.block_messages, self.block_bytes, self.codec)

    def blocks(self) -> Iterator[Block]:
        with (
            self._as_unusable(),
            closing(connect(self.path)) as db,
        ):  # its own connection: one snapshot, however long the caller reads
            for row in db.execute("select topic, topic_id, partition, first, last, count, body from block order by id"):
                yield Block(*row)

    def claim(
        self, owner: str, limit: int, lease_seconds: float, *, ordered: bool = False, limit_bytes: int | None = None
    ) -> list[Claim]:
        token = uuid.uuid4().hex
        while True:
            with self._session() as db:
                leased = queue_table.lease(
                    db, self.clock.now(), owner, token, lease_seconds, limit, limit_bytes, ordered
                )
            claims, bad = opened(leased, owner, token, self.clock.wall())
            if bad and sync_failures(self.path):
                raise StorageUnusable(f"the storage {self.path} cannot be used: the disk has failed")
            if bad:
                with self._session() as db:
                    queue_table.dead_letter_damaged(db, token, bad.items())
            if claims or not bad:
                return claims

    def settle(
        self, claim: Claim, acks: Sequence[bool], *, dead: Mapping[int, str] = NONE_DEAD, retry_seconds: float = 0.0
    ) -> Settled:
        verdict = judge(claim, acks, dead, self.codec, self.clock.wall())
        with self._session() as db:
            is_done = queue_table.settle(db, self.clock.now(), claim, verdict, retry_seconds)
        return verdict.settled if is_done else Settled(is_lost=True)

    def renew(self, claim: Claim, lease_seconds: float) -> bool:
        values = self.clock.now() + lease_seconds, int(claim.id), claim.token
        with self._session() as db, transaction(db):
            return bool(db.execute("update queue set until=? where id=? and token=?", values).rowcount)

    def release(self, owner: str, *, count_try: bool = False) -> int:
        with self._session() as db, transaction(db):
            return queue_table.free(db, "owner=?", owner, count_try=count_try)

    def stats(self) -> StorageStats:
        with self._session() as db:
            partitions = queue_table.partitions(db, self.clock.wall())
        return StorageStats.of(partitions, self.limits, self._free())

    def _free(self) -> Free | None:
        try:
            disk = os.statvfs(self.path.parent)
        except OSError:
            return None
        return Free.on_disk(self.path.parent, disk, self.limits.min_free_bytes)

    def dead_letter(
        self, messages: Sequence[Message], error: Errors, topic_id: str | None = None, advance: Advance | None = None
    ) -> None:
        dead_letters = given_up(messages, error, topic_id, self.codec, self.clock.wall())
        with self._session(is_durable=True) as db, transaction(db):
            if advance is not None:
                stored = judged_at_start(advance, offset_table.read(db, [advance.tp]).get(advance.tp))
                offset_table.advance(db, stored, advance.end)
            dead_letter_table.insert(db, dead_letters)

    def _dead_now(self) -> float:
        return self.clock.wall()

    def _last_dead(self) -> int:
        with self._session() as db:
            found = db.execute("select seq from sqlite_sequence where name='dead'").fetchone()
        return int(found[0]) if found else 0

    def _dead_places(self, selection: Selection, after: Place | None, limit: int) -> list[Place]:
        with self._session() as db:
            return dead_letter_table.places(db, selection, after, limit)

    def _sift_dead(self, selection: Selection, numbers: list[int]) -> list[int]:
        with self._session() as db:
            return dead_letter_table.sift(db, selection, numbers)

    def _read_dead(self, numbers: Sequence[int]) -> Iterator[DeadLetter]:
        with self._session() as db:
            yield from dead_letter_table.read(db, numbers)

    def _indexed_groups(self, selection: Selection, hours: int, now: float) -> list[DeadLetterGroup]:
        with self._session() as db:
            return dead_letter_table.groups(db, selection, hours, now)

    def _put_back_dead(self, dead_letters: list[DeadLetter]) -> int:
        pack = self.block_messages, self.block_bytes, self.codec
        with self._session() as db:
            return queue_table.requeue_dead(db, dead_letters, self.clock.wall(), *pack)

    def _remove_dead(self, dead_letters: list[DeadLetter]) -> int:
        with self._session() as db, transaction(db):
            there = dead_letter_table.remaining(db, dead_letters)
            dead_letter_table.delete(db, [each.id for each in there])
        return len(there)

    def requeue_stuck(self, selection: Selection = EVERYTHING) -> int:
        with self._session() as db:
            return queue_table.requeue_stuck(db, selection, self.clock.now())

    def clear(self, selection: Selection = EVERYTHING) -> int:
        with self._session() as db:
            return queue_table.clear(db, selection, self.clock.wall())

    def close(self) -> None:
        with self._lock:
            self._forget()

    @contextmanager
    def _session(self, is_durable: bool = False) -> Iterator[sqlite3.Connection]:
        """Yields the connection. With `is_durable`, syncs the log at the end, so that changes survive a power cut."""
        if self._pid != os.getpid():
            self._pid, self._lock = os.getpid(), threading.Lock()
            if self._log is not None:
                self._log.close()
                self._log = None
            if self._db is not None:
                _INHERITED.append(self._db)
                self._db = None
        with self._lock, self._as_unusable():
            self._notice_exchange()
            if is_durable:
                recover(self.path)
                if self._log is not None and not self._log.is_current:
                    self._forget()
            if self._db is None or self._log is None:
                self._db = connect(self.path)
                queue_table.note_boot(self._db, self.clock)
                self._log = Log(self._db, self.path)
            yield self._db
            if is_durable:
                self._log.sync()
            if self._log.is_long:
                begin_copy(self.path, LONG_SECONDS)

    def _notice_exchange(self) -> None:
        found = self._found()
        if self._file not in (None, found):
            if self._log is not None and self._log.is_in_place:
                raise StorageUnusable(
                    f"{self.path} was replaced, but {self.path}-wal belongs to the previous file: "
                    f"remove {self.path}-wal and {self.path}-shm"
                )
            self._forget()
            self.exchanges += 1
        self._file = found

    def _found(self) -> tuple[int, int]:
        try:
            found = os.stat(self.path)
        except OSError as error:
            raise StorageUnusable(f"the storage {self.path} cannot be used: {error.strerror}") from error
        return found.st_dev, found.st_ino

    @contextmanager
    def _as_unusable(self) -> Iterator[None]:
        try:
            with noting_disk_errors(self.path):
                yield
        except (sqlite3.Error, OSError) as error:
            self._forget()
            raise StorageUnusable(f"the storage {self.path} cannot be used: {error}") from error

    def _forget(self) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None
        if self._db is not None:
            self._db.close()
            self._db = None


class DirectlyStorage(FileStorage):
    """The storage of mode `directly`: Spark tasks call the handler. Stores only offsets and dead letters."""

    @property
    def identity(self) -> str:
        return f"directly:{self.path}"

    def writer(self) -> Writer:
        raise StorageError('storage.mode is "directly": messages go to the handler and are not stored')

    def finish(self, advance: Advance, dead: Sequence[tuple[Message, str]], topic_id: str | None) -> None:
        """Moves a stored offset and stores dead letters in one transaction.

        Raises GapRefused, StoredOffsetMissing, StoredOffsetMoved, StorageUnusable.
        """
        dead_letters = given_up([m for m, _ in dead], [error for _, error in dead], topic_id, self.codec, time.time())
        with self._session(is_durable=True) as db, transaction(db):
            stored = offset_table.read(db, [advance.tp]).get(advance.tp)
            offset_table.advance(db, judged(advance, stored), advance.end)
            dead_letter_table.insert(db, dead_letters)

    def _put_back_dead(self, dead_letters: list[DeadLetter]) -> int:  # noqa: ARG002
        raise StorageError(
            'storage.mode is "directly": there is no queue for requeued dead letters; to requeue them, use mode '
            '"file" with the same storage.path'
        )
