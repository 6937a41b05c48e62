"""What a storage has ever been given: two entries of one message mean that it was stored twice."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import BinaryIO

from tests.acceptance.handlers import Place


def keep_account(storage: Path) -> None:
    """Records each block that a file storage receives from now on."""
    with closing(sqlite3.connect(storage, timeout=30)) as db, db:
        db.execute("create table ever(partition, first, last)")
        db.execute(
            "create trigger account after insert on block begin insert into ever values"
            " (new.partition, new.first, new.last); end"
        )


def account(storage: Path) -> Iterator[Place]:
    with closing(sqlite3.connect(storage)) as db:
        for partition, first, last in db.execute("select partition, first, last from ever").fetchall():
            yield from ((partition, offset) for offset in range(first, last + 1))


def ever_put(directory: Path) -> Iterator[Place]:
    """Reads partition and offset of each message ever put into a new block from the append-only file."""
    for path in sorted(directory.rglob("appendonly.aof*")):
        if path.suffix in (".manifest", ".rdb"):
            continue
        with path.open("rb") as log:
            while words := _command(log):
                if words[0].upper() == b"HSET" and b":block:" in words[1] and b"tp" in words:
                    fields = dict(zip(words[2::2], words[3::2], strict=True))
                    first, last, count = (int(fields[name]) for name in (b"first", b"last", b"count"))
                    assert last - first + 1 == count
                    partition = int(fields[b"tp"].rpartition(b":")[2])
                    yield from ((partition, offset) for offset in range(first, last + 1))


def _command(log: BinaryIO) -> list[bytes]:
    head = log.readline()
    if not head:
        return []
    assert head[:1] == b"*", head
    words = []
    for _ in range(int(head[1:])):
        length = int(log.readline()[1:])
        words.append(log.read(length + 2)[:-2])
    return words
