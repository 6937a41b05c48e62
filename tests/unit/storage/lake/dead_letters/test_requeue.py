"""Requeues dead letters of a table without Spark: pyarrow writes what a transform returns."""

import shutil
import sys
from collections.abc import Callable, Container
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Field
from deltalake.schema import PrimitiveType

from kctl_agent.storage.base import StorageUnusable, TableRefused
from kctl_agent.storage.chunk import Advance, Binding, StoredOffset
from kctl_agent.storage.lake.dead_letters.requeue import (
    BatchNotStored,
    PutBack,
    RequeueBatch,
    Requeues,
    RequeueTaken,
)
from kctl_agent.storage.lake.dead_letters.table import DeadLetterTable
from kctl_agent.storage.lake.delta import files
from kctl_agent.storage.lake.delta.batch_plans import BatchPlan
from kctl_agent.storage.lake.delta.table import LakeTable
from kctl_agent.storage.lake.folder import Folder, LocalFolder
from kctl_agent.storage.lake.maintenance import vacuum
from kctl_agent.storage.lake.storage import LakeStorage
from kctl_agent.storage.lake.table_storage import LakeBatch
from kctl_agent.storage.selection import Selection
from tests.conftest import raising
from tests.lake_tables import GROUP, NOW, TP, begun, dead, offsets, opened, reported, schema, written
from tests.lake_tables import rows as rows_of
from tests.table_conformance import DEAD_LETTER, compact, write

DEAD = [100, 101, 102, 103, 104]

ODD, EVEN = {101, 103}, {100, 102, 104}  # offsets of messages that a transform marks as unreadable


class Killed(BaseException):
    pass


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tables")
    die(opened(folder / "orders", start=100), DEAD, 110)
    return folder


@pytest.fixture
def path(tables: Path, tmp_path: Path) -> Path:
    return copied(tables, tmp_path / "tables")


def copied(tables: Path, to: Path) -> Path:
    return shutil.copytree(tables, to) / "orders"


@pytest.fixture
def storage(path: Path) -> LakeStorage:
    return opened(path)


@pytest.fixture
def table(storage: LakeStorage) -> DeadLetterTable:
    return DeadLetterTable(storage, GROUP.group)


def die(storage: LakeStorage, offsets: list[int], end: int, **more: Any) -> None:
    """Commits a batch up to `end` that has dead letters at these offsets and no rows."""
    stored = storage.stored_offsets([TP])[TP]
    batch = storage.begin([Advance(*TP, stored.version, stored.next, end)])
    written(DeadLetterTable(storage, GROUP.group), batch, offsets, **more).commit()
    commit_no_rows(batch)


def commit_no_rows(batch: LakeBatch) -> None:
    batch.folder.make()
    batch.commit()


def worker(path: Path) -> DeadLetterTable:
    return DeadLetterTable(opened(path), GROUP.group)


def transformed(batch: RequeueBatch, marked: Container[int]) -> None:
    every = [row for file in batch.files for row in pq.ParquetFile(file.uri).read().to_pylist()]
    rows = [
        row
        for row in every
        if (row["group"], row["cluster"]) == (batch.requeues.owner.group, batch.requeues.owner.cluster_id)
        and batch.state.stored < (row["requeue"] or 0) <= batch.state.requested
    ]
    put([row for row in rows if row["offset"] not in marked], rows_of([]).schema, batch.folder)
    kept = [{**row, "tries": row["tries"] + 1, "requeue": None} for row in rows if row["offset"] in marked]
    if kept:
        put(kept, DEAD_LETTER, batch.kept_folder)
        batch.kept = reported(batch.kept_folder, len(kept))


def put(rows: list[dict[str, Any]], columns: pa.Schema, folder: Folder) -> None:
    folder.make()
    write(folder, pa.Table.from_pylist(rows, columns))


def put_back(table: DeadLetterTable, marked: Container[int] = ()) -> PutBack | None:
    batch = table.requeues.next()
    if batch is None:
        return None
    if batch.messages:
        transformed(batch, marked)
    return batch.commit()


def taken(table: DeadLetterTable) -> RequeueBatch:
    batch = table.requeues.next()
    assert batch is not None
    transformed(batch, ODD)
    return batch


def finished(path: Path, marked: Container[int]) -> tuple[list[int], list[int]]:
    while put_back(table := worker(path), marked) is not None:
        pass
    stored, left = offsets(path), dead(table)
    assert sorted(stored + left) == DEAD, (stored, left)
    assert DeltaTable(table.folder.uri).to_pyarrow_table().num_rows == len(left)
    assert table.count_requeued() == 0
    return stored, left


def killed_before_the_commit(table: DeadLetterTable) -> None:
    table.requeue_dead()
    with pytest.MonkeyPatch.context() as patched, suppress(Killed):
        patched.setattr(table.storage.table, "commit", raising(Killed()))
        put_back(table, ODD)


@pytest.mark.shows("a requeue leaves the dead letters of another cluster, and names how many")
def test_after_a_move_only_dead_letters_of_the_new_cluster_are_requeued(table: DeadLetterTable, path: Path) -> None:
    moved = opened(path, Binding(GROUP.group, "another"), start=0)
    written(DeadLetterTable(moved, GROUP.group), begun(moved, 0, 10), [3], cluster="another").commit()
    begun(moved, 0, 10).commit()
    anew = DeadLetterTable(LakeStorage(LocalFolder(path)), GROUP.group, lambda: "another")

    assert anew.requeue_dead(expect=1) == 1

    assert anew.note == "; 5 dead letters of another cluster left"
    assert dead(table) == DEAD
    assert DeadLetterTable(moved, GROUP.group).requeues.next() is not None, "its worker takes them"


STEPS = {"commit": LakeTable, "rewrite": LakeTable, "write": BatchPlan, "unlink": Path, "put": sys.modules[__name__]}


def kills(monkeypatch: pytest.MonkeyPatch, at: int) -> list[str]:
    """Kills the process right after step number `at`. Returns the names of the steps so far."""
    seen: list[str] = []

    def killing(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any, **kwargs: Any) -> Any:
            seen.append(name)
            number = len(seen)
            try:
                return real(*args, **kwargs)
            finally:  # even if the step raised, like an unlink of a file that does not exist
                if number == at:
                    raise Killed

        return step

    for name, owner in STEPS.items():
        monkeypatch.setattr(owner, name, killing(name, getattr(owner, name)))
    return seen


@pytest.mark.shows("a requeue makes each row once, or a dead letter again, under kills at any step")
def test_a_kill_at_any_step_loses_no_message(tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for at in range(1, 30):
        path = copied(tables, tmp_path / str(at))
        table = worker(path)
        with monkeypatch.context() as patched:
            seen = kills(patched, at)
            try:
                table.requeue_dead()
                put_back(table, ODD)
            except Killed:
                pass
            else:
                break

        for each in (opened(path).table, LakeTable(table.folder)):
            compact(each, 1 << 20)
            vacuum.remove(each, vacuum.unused(each, 0))
        with monkeypatch.context() as patched, suppress(Killed):
            kills(patched, 3 * at % 8 + 1)
            put_back(worker(path), EVEN)
        worker(path).requeue_dead()
        finished(path, EVEN)
    else:
        raise AssertionError("there are more steps")
    assert set(seen) == {*STEPS}
    assert len(seen) > 5


def test_a_changed_table_takes_none(table: DeadLetterTable, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    by_spark = schema(("topic", "string"), ("offset", "long"), ("error", "string")).encode()  # Spark's own schema
    columns = DEAD_LETTER.with_metadata({b"org.apache.spark.sql.parquet.row.metadata": by_spark})
    monkeypatch.setattr(sys.modules[__name__], "DEAD_LETTER", columns)
    killed_before_the_commit(table)
    added = Field("n", PrimitiveType("string"), nullable=False)
    DeltaTable(table.folder.uri).alter.add_columns([added])

    with pytest.raises(TableRefused, match=r"column n of the table .* must not be null"):
        put_back(worker(path))

    assert table.count_requeued() == 5, "nothing was removed either"


def test_dead_letters_of_an_unstored_batch_wait(table: DeadLetterTable, storage: LakeStorage, path: Path) -> None:
    """The worker was killed between the two commits, so the batch runs again, perhaps with another transform."""
    batch = storage.begin([Advance(*TP, 1, 110, 120)])
    written(table, batch, [115]).commit()
    assert table.requeue_dead(Selection(offset_from=104)) == 2

    with pytest.raises(BatchNotStored, match="of t-0 from offset 110 on belong to a batch that is not stored yet"):
        put_back(table)
    assert (offsets(path), table.count_requeued()) == ([], 2)
    commit_no_rows(batch)

    assert put_back(table) == PutBack(2, 2, 0)
    assert put_back(table) is None
    assert offsets(path) == [104, 115]


def test_a_repeated_batch_stores_no_letter_twice(table: DeadLetterTable, storage: LakeStorage, path: Path) -> None:
    first = storage.begin([Advance(*TP, 1, 110, 120)])
    written(table, first, [115]).commit()
    first.discard()
    assert table.requeue_dead(Selection(offset_from=110)) == 1

    again = storage.begin([Advance(*TP, 1, 110, 120)])
    written(table, again, [115]).commit()
    commit_no_rows(again)

    assert put_back(table) == PutBack(1, 1, 0)
    assert (offsets(path), dead(table)) == ([115], DEAD)


def test_groups_of_one_name_requeue_their_own(table: DeadLetterTable, storage: LakeStorage, path: Path) -> None:
    there = opened(path, replace(GROUP, cluster_id="cluster-2"), start=100)
    other = DeadLetterTable(there, GROUP.group)
    die(there, [107, 108], 110, cluster="cluster-2")

    assert table.requeue_dead() == 7, "of the group's name"
    assert put_back(table, ODD) == PutBack(5, 3, 2)
    assert other.count_requeued() == 2
    assert put_back(other) == PutBack(2, 2, 0)
    assert (put_back(table), put_back(other)) == (None, None)

    assert offsets(path) == [100, 102, 104, 107, 108]
    assert dead(table) == [101, 103]


def test_a_request_is_cancelled_until_a_worker_has_put_it_back(table: DeadLetterTable, path: Path) -> None:
    command = DeadLetterTable(LakeStorage(LocalFolder(path)), GROUP.group)
    table.requeue_dead(Selection(offset_to=100))
    put_back(table)
    assert command.requeue_dead() == 4
    assert (command.cancel_requeued(), command.count_requeued()) == (4, 0)

    assert put_back(table) is None
    assert (dead(table), offsets(path)) == (DEAD[1:], [100])
    assert command.cancel_requeued() == 0
    assert command.requeue_dead() == 4
    assert put_back(table) == PutBack(4, 4, 0)
    assert (dead(table), offsets(path)) == ([], DEAD)


@pytest.mark.parametrize(
    ("name", "after"),
    [
        ("commit", True),
        ("rewrite", False),
        pytest.param("commit", False, marks=pytest.mark.long),
        pytest.param("rewrite", True, marks=pytest.mark.long),
    ],
)
@pytest.mark.parametrize(
    "other",
    [lambda path: worker(path).cancel_requeued(), lambda path: put_back(worker(path), EVEN)],
    ids=["cancels", "puts back"],
)
def test_a_worker_that_commits_in_the_midst_of_another_process_leaves_each_message_in_one_place(
    tables: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    other: Callable[[Path], object],
    after: bool,
) -> None:
    real = getattr(LakeTable, name)
    for at in range(1, 9):
        path = copied(tables, tmp_path / str(at))
        table = worker(path)
        table.requeue_dead()
        steps = 0
        frozen = taken(table)
        with monkeypatch.context() as patched:

            def step(*args: Any, batch: RequeueBatch = frozen, at: int = at, **kwargs: Any) -> Any:
                nonlocal steps
                steps += 1
                is_now = steps == at
                done = real(*args, **kwargs) if after or not is_now else None
                if is_now:
                    with suppress(RequeueTaken):
                        batch.commit()
                return real(*args, **kwargs) if not after and is_now else done

            patched.setattr(LakeTable, name, step)
            with suppress(RequeueTaken):
                other(path)
        finished(path, EVEN)
        if steps < at:
            return
    raise AssertionError("there are more steps")


def test_a_killed_cancellation_is_whole_or_none(tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for at in range(1, 20):
        path = copied(tables, tmp_path / str(at))
        worker(path).requeue_dead()
        with monkeypatch.context() as patched, suppress(Killed):
            seen = kills(patched, at)
            worker(path).cancel_requeued()

        assert finished(path, ODD) in [([], DEAD), ([100, 102, 104], [101, 103])], at
        if len(seen) < at:
            return
    raise AssertionError("there are more steps")


def test_a_message_read_twice_is_requeued_twice(table: DeadLetterTable, storage: LakeStorage, path: Path) -> None:
    """A message is read twice after a seek or in a recreated topic, so each copy needs a mark of its own."""
    storage.init_offsets([StoredOffset(*TP, None, 100)], storage.stored_offsets([TP]))
    die(storage, [101], 102, at=NOW + timedelta(seconds=1))
    table.requeue_dead(Selection(offset_from=101, offset_to=102))

    batch = table.requeues.next()
    assert batch is not None
    assert (batch.messages, batch.copies) == (3, 2)


def test_a_replaced_main_table_is_given_what_is_asked_for_later(table: DeadLetterTable, path: Path) -> None:
    table.requeue_dead(Selection(offset_to=101))
    put_back(table, ODD)
    path.rename(path.with_name("old"))
    opened(path)

    again = worker(path)
    assert put_back(again) == PutBack(0, 0, 0)
    assert again.requeue_dead() == 4
    assert put_back(again) == PutBack(4, 4, 0)

    assert offsets(path) == [101, 102, 103, 104]


def test_a_replaced_dead_letter_table_continues(table: DeadLetterTable, storage: LakeStorage, path: Path) -> None:
    for offset in (100, 101):
        table.requeue_dead(Selection(offset_to=offset))
        put_back(table)
    Path(table.folder.uri).rename(path.with_name("old"))
    replaced = worker(path)
    die(storage, [115], 120)

    assert put_back(replaced) is None
    assert replaced.requeue_dead() == 1
    assert put_back(replaced) == PutBack(1, 1, 0)
    assert offsets(path) == [100, 101, 115]


def test_in_a_restored_table_dead_letters_requeued_since_are_dead_again(table: DeadLetterTable, path: Path) -> None:
    """The copy was made between a request and its batch, so it does not show which dead letters became rows."""
    table.requeue_dead(Selection(offset_to=101))
    copy = shutil.copytree(Path(table.folder.uri), path.with_name("copy"))
    for selection in (Selection(offset_to=101), Selection(offset_from=104)):
        table.requeue_dead(selection)
        put_back(table, ODD)
    shutil.rmtree(Path(table.folder.uri))
    copy.rename(Path(table.folder.uri))
    restored = worker(path)

    assert put_back(restored) is None

    assert (dead(restored), offsets(path)) == (DEAD, [100, 104])
    assert restored.requeue_dead(Selection(offset_from=101, offset_to=101)) == 1
    assert put_back(restored) == PutBack(1, 1, 0)
    assert put_back(restored) is None


def test_a_recreated_topic_keeps_no_request_waiting(table: DeadLetterTable, storage: LakeStorage, path: Path) -> None:
    batch = storage.begin([Advance(*TP, 1, 110, 120)])
    written(table, batch, [115]).commit()
    commit_no_rows(batch)
    storage.init_offsets([StoredOffset(*TP, None, 110)], storage.stored_offsets([TP]))
    written(table, storage.begin([Advance(*TP, 2, 110, 120)]), [116]).commit()  # and its process was killed

    assert table.requeue_dead(Selection(offset_from=115, offset_to=115)) == 1

    assert put_back(table) == PutBack(1, 1, 0)
    assert offsets(path) == [115]


Damage = Callable[[RequeueBatch, pytest.MonkeyPatch], object]


def of_counts(rows: int, kept: int) -> Damage:
    def damage(batch: RequeueBatch, _: object) -> None:
        batch.rows, batch.kept = reported(batch.folder, rows), reported(batch.kept_folder, kept)

    return damage


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda batch, _: shutil.rmtree(batch.folder.uri), "is gone: nothing of it was stored"),
        (lambda batch, _: shutil.rmtree(batch.kept_folder.uri), "is gone: nothing of it was stored"),
        (of_counts(4, 2), "nothing was stored"),
        (of_counts(3, 1), "nothing was stored"),
        (
            lambda _, patched: patched.setattr(files, "read_files", raising(OSError(5, "no"))),
            "cannot be read and synced",
        ),
    ],
    ids=["no rows", "no dead letters", "a row too many", "a dead letter too few", "unsynced"],
)
def test_a_batch_with_damaged_files_is_not_committed_but_repeated(
    table: DeadLetterTable, path: Path, monkeypatch: pytest.MonkeyPatch, damage: Damage, words: str
) -> None:
    table.requeue_dead()
    batch = taken(table)
    with monkeypatch.context() as patched:
        damage(batch, patched)
        with pytest.raises(StorageUnusable, match=words):
            batch.commit()

    assert offsets(path) == []
    assert put_back(table) == PutBack(5, 5, 0)


def test_late_files_stay_uncommitted(table: DeadLetterTable, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table.requeue_dead()
    batch = taken(table)
    with monkeypatch.context() as patched:
        patched.setattr(Requeues, "_finish", raising(Killed()))
        with pytest.raises(Killed):
            batch.commit()
    [file] = Path(batch.kept_folder.uri).glob("*.parquet")
    shutil.copy(file, file.with_name("part-00000-of-an-attempt-that-woke-late.parquet"))

    assert worker(path).requeues.next() is None

    assert offsets(path) == [100, 102, 104]
    assert table.count_dead() == 2


def test_late_finishers_add_none_again(table: DeadLetterTable, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table.requeue_dead()
    batch = taken(table)
    add_kept, waiting = Requeues._add_kept, [worker(path)]

    def frozen(requeues: Requeues, state: Any) -> None:
        if waiting:
            other = waiting.pop()
            assert put_back(other) is None
            assert other.requeue_dead() == 2
            put_back(other)
        add_kept(requeues, state)

    monkeypatch.setattr(Requeues, "_add_kept", frozen)
    assert batch.commit() == PutBack(5, 3, 2)

    assert (dead(worker(path)), offsets(path)) == ([], DEAD)


def test_missing_files_remove_nothing(table: DeadLetterTable) -> None:
    killed_before_the_commit(table)
    [folder] = Path(table.folder.uri).glob("kctl-requeue-*")
    folder.rename(folder.with_name("elsewhere"))

    with pytest.raises(StorageUnusable, match="is gone, with those of 5 dead letters that could not be read again"):
        put_back(table)
    assert table.count_requeued() == 5
    folder.with_name("elsewhere").rename(folder)

    assert put_back(table) is None
    assert {each.offset: each.tries for each in table.dead()} == {101: 2, 103: 2}
