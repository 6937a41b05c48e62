"""Files of earlier versions (`version_N.sql`, as their code wrote them) become files of today, whole."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from kctl_agent.message import Message
from kctl_agent.storage.base import Binding, Claim, DeadLetter, OtherGroup, Settled, StorageUnusable, StoredOffset
from kctl_agent.storage.claim import PartitionStats
from kctl_agent.storage.file import FileStorage, migrations
from kctl_agent.storage.file.schema import SCHEMA_VERSION
from kctl_agent.storage.limits import StorageLimits
from tests.conformance.given import chunk, everything, offsets, put, total
from tests.unit.storage.file.test_storage import Machine

TOKEN = "00000000000000000000000000000003"
"""Of the lease in the files of versions 2 and 3."""
ALL = [1, 2, 3]


def written_by(version: int, path: Path) -> Path:
    with closing(sqlite3.connect(path)) as db:
        db.executescript(Path(__file__).with_name(f"version_{version}.sql").read_text(encoding="utf-8"))
    return path


def opened(path: Path) -> FileStorage:
    """A second after the last of what is in it happened."""
    clock = Machine(since_boot=1002.0, unix=1_700_000_002.0)
    storage = FileStorage(path, block_messages=3, clock=clock, limits=StorageLimits(messages=100, dead=50))
    storage.prepare()
    return storage


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "storage.sqlite"


@pytest.fixture(params=[2, 3])
def version(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def storage(version: int, path: Path) -> Iterator[FileStorage]:
    with closing(opened(written_by(version, path))) as storage:
        yield storage


def test_a_file_of_version_1_goes_on_where_it_was(path: Path) -> None:
    with closing(opened(written_by(1, path))) as storage:
        assert total(storage) == (12, 0, 0, 0)
        assert storage.stats().bytes == sum(len(block.body) for block in storage.blocks())
        put(storage, chunk(12, 15, version=0))
        assert storage.stored_offsets([("t", 0)])[("t", 0)] == StoredOffset("t", 0, "A", 15, 0)
        assert storage.bind(Binding("orders", "K1")), "it belongs to the first group that comes"
        assert [message.offset for message in everything(storage)] == list(range(15))
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("pragma user_version").fetchone() == (SCHEMA_VERSION,)


@pytest.mark.shows("storages of earlier commits are migrated whole or not at all; later ones are refused")
def test_messages_leases_delays_and_dead_letters_are_counted_as_before(storage: FileStorage) -> None:
    stats = storage.stats()

    assert stats.partitions == (
        PartitionStats("t", 0, pending=3, processing=3, delayed=2, dead=5, bytes=373, oldest_seconds=2.0),
        PartitionStats("t", 1, pending=6, bytes=180, oldest_seconds=1.0),
        PartitionStats("t", 3, dead=1, bytes=94),
    )
    assert stats.limits == StorageLimits(messages=100, dead=50)
    assert [message.offset for block in storage.blocks() for message in block.messages()] == [
        *(1, 2, 3, 4, 5, 12, 13, 14),
        *range(7, 13),
    ]


def test_stored_offsets_stay_where_they_are(version: int, storage: FileStorage) -> None:
    versions = (1, 2) if version == 3 else (0, 0)

    assert storage.stored_offsets([("t", 0), ("t", 1), ("t", 3)]) == {
        ("t", 0): StoredOffset("t", 0, "A", 15, versions[0]),
        ("t", 1): StoredOffset("t", 1, "B", 13, versions[1]),
    }
    (done,) = put(storage, chunk(14, 18, version=versions[0]))
    assert (done.stored, done.skipped) == (3, 1)


def test_a_storage_keeps_its_owner(version: int, storage: FileStorage) -> None:
    if version == 2:
        assert storage.bind(Binding("orders", "K1")), "it belongs to the first group that comes"
        return

    assert storage.bind(Binding("orders", "K1")) == "00000000000000000000000000000001"
    with pytest.raises(OtherGroup, match="belongs to group orders of cluster K1"):
        storage.bind(Binding("others", "K1"))


def test_a_lease_from_before_is_renewed_and_settled(storage: FileStorage) -> None:
    (block,) = [block for block in storage.blocks() if block.first == 3]
    leased = Claim("2", TOKEN, "b", block, 0, 0.0, block.messages())
    assert not storage.renew(Claim("2", "another", "b", block, 0, 0.0, leased.messages), 60.0)

    assert storage.renew(leased, 60.0)
    assert storage.settle(leased, [True, False, True], max_tries=5) == Settled(gone=2, again=1)

    assert total(storage) == (9, 0, 3, 6)


def test_a_lease_from_before_ends_and_counts_a_try(storage: FileStorage) -> None:
    assert storage.release("b", count_try=True) == 3

    (claim,) = storage.claim("c", 3, 60.0)

    assert (claim.tries, offsets([claim])) == (1, [3, 4, 5])


def test_what_is_delayed_comes_again_when_it_would_have(storage: FileStorage) -> None:
    assert isinstance(storage.clock, Machine)
    storage.clock.since_boot = 2000.0
    assert offsets(storage.claim("c", 100, 60.0)) == [3, 4, 5, 12, 13, 14, *range(7, 13)]

    storage.clock.since_boot = 2001.0

    (claim,) = storage.claim("c", 100, 60.0)
    assert (claim.tries, offsets([claim])) == (1, [1, 2])


def test_dead_letters_are_as_they_were(storage: FileStorage) -> None:
    def shown(x: DeadLetter) -> tuple[object, ...]:
        return x.id, x.block.partition, x.offset, x.block.topic_id, x.tries, x.error, x.at, x.is_damaged

    error, at = "ValueError: käse\nTraceback", 1_700_000_001.0
    assert [shown(each) for each in storage.dead()] == [
        ("1", 0, 7, "A", 1, error, at, False),
        ("2", 0, 8, "A", 1, error, at, False),
        ("3", 3, 7, None, 4, "handler refused", at, False),
        ("4", 0, 9, "A", 0, "these bytes are not a block", at, True),
    ]
    assert [each.messages() for each in storage.dead()][2] == [Message("t", 3, 7, b"k", None, 5, (("h", b"\xff"),), 4)]
    assert list(storage.dead())[3].block.body == b"KB\xff"
    assert [(group.cause, group.count) for group in storage.dead_groups()] == [
        (("ValueError", ""), 2),
        (("handler refused", ""), 1),
        (("these bytes are not a block", ""), 1),
    ]

    assert storage.requeue_dead() == 3
    assert total(storage) == (12, 3, 2, 3)
    storage.dead_letter([Message("t", 3, 8, None, b"v", 5)], "no")
    assert [each.id for each in storage.dead()] == ["4", "5"], "ids go on, none comes twice"


def test_all_of_it_can_be_handled(storage: FileStorage) -> None:
    assert isinstance(storage.clock, Machine)
    storage.clock.since_boot = 1e6
    storage.requeue_dead()

    found = {(message.partition, message.offset) for message in everything(storage)}

    assert found == {(0, offset) for offset in (1, 2, 3, 4, 5, 7, 8, 12, 13, 14)} | {
        *((1, offset) for offset in range(7, 13)),
        (3, 7),
    }
    storage.remove_dead()
    assert (total(storage), storage.stats().bytes) == ((0, 0, 0, 0), 0)


def schema_of(path: Path) -> dict[str, object]:
    """Names, columns and what is indexed; the text of triggers."""
    with closing(sqlite3.connect(path)) as db:
        found: dict[str, object] = {}
        for kind, name, sql in db.execute("select type, name, sql from sqlite_master").fetchall():
            columns = db.execute(f"pragma {'index_xinfo' if kind == 'index' else 'table_xinfo'}({name})").fetchall()
            found[f"{kind} {name}"] = sql if kind == "trigger" else columns
        return found


@pytest.mark.parametrize("old", ALL)
def test_a_migrated_file_has_the_tables_of_a_new_one(old: int, path: Path, tmp_path: Path) -> None:
    new = tmp_path / "new.sqlite"
    for each in (written_by(old, path), new):
        opened(each).close()

    assert schema_of(path) == schema_of(new)
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("pragma integrity_check").fetchone() == ("ok",)


@pytest.mark.parametrize("old", ALL)
def test_a_migration_that_fails_leaves_the_file_as_it_was(
    old: int, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def content() -> list[str]:
        with closing(sqlite3.connect(path)) as db:
            return [*db.iterdump(), str(db.execute("pragma user_version").fetchone())]

    before = (written_by(old, path), content())[1]
    last = (*migrations.STEPS[SCHEMA_VERSION], "update queue set missing=1")
    monkeypatch.setitem(migrations.STEPS, SCHEMA_VERSION, last)

    with pytest.raises(StorageUnusable, match="no such column: missing"):
        opened(path)

    assert content() == before


def test_what_an_older_release_still_has_open_cannot_be_written_by_it(path: Path) -> None:
    with closing(sqlite3.connect(written_by(3, path))) as older:
        assert older.execute("select count(*) from turn").fetchone() == (5,)
        opened(path).close()

        for statement in ("update turn set owner='x'", "update mark set next=0", "insert into turn(id) values (9)"):
            with pytest.raises(sqlite3.OperationalError, match="no such table"):
                older.execute(statement)
