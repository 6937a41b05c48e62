import operator
import uuid
from datetime import UTC, datetime, timedelta
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from kctl_agent.storage import base
from kctl_agent.storage.base import StorageUnusable
from kctl_agent.storage.chunk import Advance, Binding, StoredOffset, StoredOffsetMoved
from kctl_agent.storage.claim import DeadLetter
from kctl_agent.storage.lake.dead_letters import table as dead_letter_table
from kctl_agent.storage.lake.dead_letters.search import read
from kctl_agent.storage.lake.dead_letters.selection import Condition, is_null, of_cluster, than
from kctl_agent.storage.lake.dead_letters.table import DeadLetterTable
from kctl_agent.storage.lake.folder import LocalFolder
from kctl_agent.storage.lake.storage import LakeStorage
from kctl_agent.storage.limits import StorageLimits
from kctl_agent.storage.selection import Selection
from kctl_agent.table_maintenance import looked_after
from tests.conftest import raising
from tests.lake_tables import GROUP, NOW, TP, begun, dead, opened, written
from tests.table_conformance import DEAD_LETTER_SCHEMA


@pytest.fixture
def table(storage: LakeStorage) -> DeadLetterTable:
    return DeadLetterTable(storage, GROUP.group)


@pytest.mark.shows("a marked message becomes one dead letter and no row, under kills between commits")
def test_dead_letters_come_before_rows_and_once(storage: LakeStorage, table: DeadLetterTable) -> None:
    batch = begun(storage, 100, 110)
    written(table, batch, [101, 105]).commit()
    batch.discard()

    again = begun(storage, 100, 115)
    assert table.earlier_try(again).messages == (("t", 0, 101), ("t", 0, 105)), "are left out of the rows"
    written(table, again, [101, 103, 112]).commit()
    again.commit()

    assert dead(table) == [101, 103, 105, 112]
    assert storage.stored_offsets([TP])[TP].next == 115
    assert table.earlier_try(begun(storage, 115, 120)).messages == ()


def test_a_message_is_in_one_table_after_a_stale_query(storage: LakeStorage, table: DeadLetterTable) -> None:
    """The stale query marks messages that the owner does not mark. The owner has fenced earlier queries."""
    written(table, begun(storage, 100, 110), []).commit()
    batch = begun(storage, 100, 110)
    table.fence(batch, table.earlier_try(batch))
    stale = begun(storage, 100, 120)
    written(table, stale, [105]).commit()

    with pytest.raises(StoredOffsetMoved, match="another process is about to store dead letters of t-0"):
        batch.commit()

    again = begun(storage, 100, 110)
    assert again.claims != batch.claims, "is fenced anew"
    earlier = table.earlier_try(again)
    assert earlier.messages == (("t", 0, 105),), "is left out of the rows"
    table.fence(again, earlier)
    again.commit()
    with pytest.raises(StoredOffsetMoved):
        stale.commit()
    assert dead(table) == [105]


def test_a_message_of_a_time_that_python_does_not_have_is_listed(storage: LakeStorage, table: DeadLetterTable) -> None:
    microseconds = 1_782_000_000_000_000_000
    written(table, begun(storage, 100, 110), [101], timestamp=microseconds).commit()

    [dead_letter] = table.dead()

    assert dead_letter.messages()[0].timestamp == microseconds // 1000


def test_who_was_frozen_stores_none_beside_a_batch_without_any(storage: LakeStorage, table: DeadLetterTable) -> None:
    written(table, begun(storage, 100, 110), [101]).commit()
    storage.advance_offsets([Advance(*TP, 1, 100, 110)])
    zombie = begun(storage, 110, 120)
    frozen = written(table, zombie, [111])

    batch = begun(storage, 110, 115)
    table.fence(batch, table.earlier_try(batch))
    batch.commit()

    with pytest.raises(StoredOffsetMoved):
        frozen.commit()
    assert dead(table) == [101]


def test_of_two_owners_one_stores_and_an_older_batch_is_run_again(storage: LakeStorage, table: DeadLetterTable) -> None:
    batch = begun(storage, 100, 110)
    nothing = table.earlier_try(batch)
    written(table, begun(storage, 100, 105), []).commit()
    with pytest.raises(StoredOffsetMoved):
        table.begin(batch, DEAD_LETTER_SCHEMA, nothing)

    batch = begun(storage, 100, 110)
    earlier = table.earlier_try(batch)
    written(table, begun(storage, 100, 110), [101]).commit()

    with pytest.raises(StoredOffsetMoved):
        table.fence(batch, earlier)
    assert table.earlier_try(begun(storage, 100, 110)).messages == (("t", 0, 101),)


def test_without_dead_letters_nothing_is_fenced(storage: LakeStorage, table: DeadLetterTable) -> None:
    batch = begun(storage, 100, 110)

    assert not table.fence(batch, table.earlier_try(batch))
    assert not Path(table.folder.uri).exists()
    written(table, begun(storage, 100, 110), []).commit()

    assert table.fence(batch, table.earlier_try(batch))


def test_a_recreated_topic_has_dead_letters_of_its_own(storage: LakeStorage, table: DeadLetterTable) -> None:
    batch = begun(storage, 100, 110)
    written(table, batch, [101, 105]).commit()
    batch.commit()
    storage.init_offsets([StoredOffset(*TP, str(uuid.uuid4()), 100)], storage.stored_offsets([TP]))  # as after a seek

    written(table, begun(storage, 100, 110, version=2), [103]).commit()  # and its process was killed

    again = begun(storage, 100, 110, version=2)
    assert table.earlier_try(again).messages == (("t", 0, 103),)
    written(table, again, [101, 103], at=NOW + timedelta(seconds=1)).commit()
    assert sorted(dead(table)) == [101, 101, 103, 105]
    newest = table.find_dead("t:0:101")
    assert (newest and newest.at) == (NOW + timedelta(seconds=1)).timestamp()


def test_a_replaced_table_knows_no_letters(storage: LakeStorage, table: DeadLetterTable, path: Path) -> None:
    written(table, begun(storage, 100, 110), [101]).commit()
    path.rename(path.with_name("old"))
    replaced = opened(path, start=100)
    again = DeadLetterTable(replaced, GROUP.group)
    batch = begun(replaced, 100, 110)

    again.fence(batch, again.earlier_try(batch))  # and its process was killed

    assert again.earlier_try(begun(replaced, 100, 110)).messages == ()


@pytest.mark.shows("expiring, sending and exporting a table's dead letters costs in proportion to their size")
def test_old_files_are_removed_daily(path: Path, storage: LakeStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    limited = LakeStorage(LocalFolder(path), limits=StorageLimits(dead_seconds=3600.0))
    limited.bind(GROUP)
    table = DeadLetterTable(limited, GROUP.group)
    old = NOW - timedelta(hours=2)
    written(table, begun(limited, 100, 110), [101], at=old).commit()
    written(table, begun(limited, 100, 112), [110, 111], at=[old, NOW]).commit()
    written(table, begun(limited, 100, 114), [113], at=old).commit()
    table.requeue_dead(Selection(offset_from=113))
    files = parquet(table)

    with monkeypatch.context() as patched:
        patched.setattr(DeadLetterTable, "expire", raising(StorageUnusable("the disk is away")))
        assert looked_after(limited, GROUP.group) == ([], ["the disk is away"])

    assert looked_after(limited, GROUP.group) == (["1 dead letter removed (storage.dead_expire_seconds)"], [])
    version = DeltaTable(table.folder.uri).version()
    assert looked_after(limited, GROUP.group) == ([], []), "the day is not over"

    assert dead(table) == [110, 111], "a file that has a newer one stays whole"
    assert table.count_requeued() == 1
    assert parquet(table) == files
    assert DeltaTable(table.folder.uri).version() == version
    Path(table.folder.uri, "_kctl", "vacuumed").unlink()
    assert looked_after(limited, GROUP.group) == ([], [])
    assert DeltaTable(table.folder.uri).version() == version, "what removes nothing is no commit"


def test_a_send_rewrites_once(storage: LakeStorage, table: DeadLetterTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letter_table, "SENT", 10)
    written(table, begun(storage, 100, 200), range(100, 200)).commit()
    written(table, begun(storage, 100, 300), range(200, 300)).commit()
    before, version, sent = parquet(table), DeltaTable(table.folder.uri).version(), list[int]()

    def send(page: list[DeadLetter]) -> list[DeadLetter]:
        sent.extend(each.offset for each in page)
        return [each for each in page if each.offset % 50]

    assert table.move_dead(send) == 196

    assert sorted(sent) == list(range(100, 300))
    assert dead(table) == [100, 150, 200, 250]
    assert DeltaTable(table.folder.uri).version() == version + 2
    assert sum(parquet(table).values()) < 2 * sum(before.values())


def test_a_sent_file_is_removed(storage: LakeStorage, table: DeadLetterTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letter_table, "SENT", 10)
    monkeypatch.setattr(dead_letter_table, "MOST_ROWS", 20)
    written(table, begun(storage, 100, 200), range(100, 200)).commit()
    written(table, begun(storage, 100, 250), range(200, 250)).commit()
    before, version = parquet(table), DeltaTable(table.folder.uri).version()

    assert table.move_dead(lambda page: page, Selection(offset_to=229)) == 130

    assert dead(table) == list(range(230, 250))
    assert DeltaTable(table.folder.uri).version() == version + 1 + 2, "the second file by DELETEs of 20 rows"
    assert len(parquet(table)) == len(before) + 2


def test_a_dead_letter_requeued_during_a_send_stays(storage: LakeStorage, table: DeadLetterTable) -> None:
    written(table, begun(storage, 100, 200), range(100, 110)).commit()
    other = DeadLetterTable(LakeStorage(table.folder.sibling("orders")), GROUP.group)

    def send(page: list[DeadLetter]) -> list[DeadLetter]:
        assert other.requeue_dead(Selection(offset_from=105, offset_to=105)) == 1
        return page

    assert table.move_dead(send) == 9

    assert (dead(table), table.count_requeued()) == ([], 1)


def test_acknowledged_ones_go(storage: LakeStorage, table: DeadLetterTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letter_table, "SENT", 10)
    written(table, begun(storage, 100, 200), range(100, 130)).commit()

    def send(page: list[DeadLetter]) -> list[DeadLetter]:
        if page[0].offset >= 120:
            raise OSError("the brokers are away")
        return page

    with pytest.raises(StorageUnusable, match="the brokers are away"):
        table.move_dead(send)

    assert dead(table) == list(range(120, 130))


def test_an_export_reads_once(storage: LakeStorage, table: DeadLetterTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "PAGE", 10)
    written(table, begun(storage, 100, 200), range(100, 150), at=NOW).commit()
    written(table, begun(storage, 100, 200), range(150, 200), at=NOW - timedelta(hours=1)).commit()
    read, reads = DeltaTable.to_pyarrow_dataset, list[DeltaTable]()

    def noted(self: DeltaTable, *args: Any) -> Any:
        reads.append(self)
        return read(self, *args)

    monkeypatch.setattr(DeltaTable, "to_pyarrow_dataset", noted)

    found = [each.offset for each in table.dead()]

    assert found == [*range(150, 200), *range(100, 150)], "the oldest first"
    assert len(reads) == 1


def parquet(table: DeadLetterTable) -> dict[str, int]:
    return {str(file): file.stat().st_size for file in Path(table.folder.uri).rglob("*.parquet")}


def test_clusters_have_letters_of_their_own(storage: LakeStorage, table: DeadLetterTable, path: Path) -> None:
    written(table, begun(storage, 100, 110), [101]).commit()
    there = opened(path, Binding(GROUP.group, "another"), start=100)
    other = DeadLetterTable(there, GROUP.group)
    written(other, begun(there, 100, 110), [103], cluster="another").commit()
    assert other.earlier_try(begun(there, 100, 110)).messages == (("t", 0, 103),), "leaves out none of another cluster"
    assert table.count_dead() == 2
    with table.storage.table.latest() as rows:
        rows.update({"error": "'KeyError: x'"}, predicate="cluster = 'another'")

    assert table.remove_dead(Selection(error_class="KeyError"), expect=1) == 1
    assert [each.error for each in table.dead()] == ["no JSON"]


DRAWN = datetime(2026, 11, 24, tzinfo=UTC)
TEXTS = ["", "it's", 'a "b"', "c", None]
NOT_NULL = [each for each in TEXTS if each is not None]


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> DeltaTable:
    """The first file lacks the column `reading`, and an UPDATE of delta-rs wrote the last file."""
    path = Path(tmp_path_factory.mktemp("dead"), "orders_dead_letters")
    rows = [
        {
            "cluster": TEXTS[number % 5],
            "group": TEXTS[number % 4],
            "topic": "t",
            "partition": number % 3,
            "offset": 100 + number // 2,
            "failed_at": DRAWN + timedelta(days=number),
            "requeue": number % 4 or None,
        }
        for number in range(30)
    ]
    write_deltalake(path, pa.Table.from_pylist(rows))
    more = pa.Table.from_pylist([row | {"reading": TEXTS[at % 5], "offset": 200 + at} for at, row in enumerate(rows)])
    write_deltalake(path, more, mode="append", schema_mode="merge")
    table = DeltaTable(path)
    table.update({"requeue": "7"}, predicate='"offset" > 220')
    return table


CONDITIONS = st.one_of(
    st.builds(than, st.sampled_from(["group", "reading"]), st.just("="), st.sampled_from(NOT_NULL)),
    st.builds(of_cluster, st.sampled_from(TEXTS)),
    st.builds(
        than, st.sampled_from(["partition", "requeue"]), st.sampled_from(["=", ">", "<=", ">="]), st.integers(0, 8)
    ),
    st.builds(than, st.just("offset"), st.sampled_from(["=", ">", "<=", ">="]), st.integers(95, 235)),
    st.builds(lambda days: than("failed_at", "<=", DRAWN + timedelta(days=days)), st.integers(-1, 31)),
    st.just(is_null("requeue")),
)


@given(st.lists(CONDITIONS, min_size=1, max_size=4))
def test_what_is_read_is_what_the_sql_of_a_change_means(drawn: DeltaTable, conditions: list[Condition]) -> None:
    wanted = reduce(operator.and_, conditions)
    [*batches] = QueryBuilder().register("dead", drawn).execute(f'select "offset" from dead where {wanted.sql}')
    by_sql = sorted(at for batch in batches for at in pa.record_batch(batch).column(0).to_pylist())

    assert sorted(read(drawn, ["offset"], wanted)["offset"].to_pylist()) == by_sql


def test_a_file_that_is_damaged_is_an_error_of_the_place(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "dead", pa.table({"offset": [1]}))
    [file] = (tmp_path / "dead").glob("*.parquet")
    file.write_bytes(b"PAR1 no file of Parquet PAR1")

    with pytest.raises(OSError, match="Parquet"):
        read(DeltaTable(tmp_path / "dead"), ["offset"], than("offset", ">", 0))
