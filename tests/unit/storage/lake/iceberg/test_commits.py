"""Files and stored offsets in one commit of an Iceberg table, whatever others commit meanwhile."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.types import StringType

from kctl_agent.storage.base import Binding, StorageUnusable, StoredOffset, StoredOffsetMoved
from kctl_agent.storage.lake import IcebergStorage
from kctl_agent.storage.lake.iceberg import commit_lock
from tests.unit.storage.lake.iceberg.tables import NAME, Lake
from tests.unit.storage.lake.test_storage import GROUP, TOPIC_ID, TP, at, begun, rows

ROOT = Path(__file__).parents[5]


def test_rows_and_stored_offset_are_one_commit(lake: Lake) -> None:
    storage = lake.begun_at(100)
    assert at(storage) == StoredOffset("t", 0, TOPIC_ID, 100, 1)
    before = len(lake.table().snapshots())

    begun(storage, 100, 110).commit()

    assert lake.offsets() == list(range(100, 110))
    assert at(storage) == StoredOffset("t", 0, TOPIC_ID, 110, 1)
    assert len(lake.table().snapshots()) == before + 1
    assert [each.name for each in (lake.path / "_kctl").iterdir()] == ["commit.lock"], "and no plan"


def test_the_id_of_the_table_is_the_storages(lake: Lake) -> None:
    storage = lake.begun_at(100)

    assert lake.opened().bind(GROUP) == storage.bind(GROUP) == str(lake.table().metadata.table_uuid)


def overtaken(monkeypatch: pytest.MonkeyPatch, lake: Lake, by: Callable[[], object]) -> None:
    """Another writer commits between the check of the next commit and its write."""
    kind = type(lake.catalog)
    commit, waiting = kind.commit_table, [by]

    def late(catalog: Catalog, *args: object) -> object:
        if waiting:
            waiting.pop()()
        return commit(catalog, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(kind, "commit_table", late)
    monkeypatch.setattr(commit_lock, "WAIT_SECONDS", 0.0)  # the other one is of another machine


def test_a_commit_between_the_check_and_the_write_is_noticed_by_the_catalog_itself(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    late, quick = begun(lake.begun_at(100), 100, 120), begun(lake.opened(), 100, 110)
    overtaken(monkeypatch, lake, quick.commit)

    with pytest.raises(StoredOffsetMoved):
        late.commit()

    assert lake.offsets() == list(range(100, 110))


def append(table: Table) -> None:
    table.append(rows([7]))


def delete(table: Table) -> None:
    table.delete("offset = 100")


def replace_all(table: Table) -> None:
    table.overwrite(rows([7]))


def add_column(table: Table) -> None:
    with table.update_schema() as update:
        update.add_column("note", StringType())


def set_property(table: Table) -> None:
    with table.transaction() as transaction:
        transaction.set_properties({"owner": "somebody"})


def expire(table: Table) -> None:
    table.maintenance.expire_snapshots().older_than(datetime.now(UTC) + timedelta(days=1)).commit()


@pytest.mark.parametrize(
    ("others", "found"),
    [
        (append, [7, *range(100, 120)]),
        (delete, list(range(101, 120))),
        (replace_all, [7, *range(110, 120)]),
        (add_column, list(range(100, 120))),
        (set_property, list(range(100, 120))),
        (expire, list(range(100, 120))),
    ],
)
def test_what_others_commit_between_the_check_and_the_write_is_no_hindrance(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, others: Callable[[Table], None], found: list[int]
) -> None:
    storage = lake.begun_at(100)
    begun(storage, 100, 110).commit()
    batch = begun(storage, 110, 120)
    overtaken(monkeypatch, lake, lambda: others(lake.table()))

    batch.commit()

    assert lake.offsets() == found
    assert at(storage) == StoredOffset(*TP, TOPIC_ID, 120, 1)


def test_a_commit_is_not_repeated_by_pyiceberg_upon_what_others_have_committed(lake: Lake) -> None:
    """Its own retries, four by default, would carry stored offsets over those of the commit that was first."""
    storage = lake.begun_at(100)
    stale = lake.opened()
    table = stale.table._load()
    begun(storage, 100, 110).commit()

    with pytest.raises(CommitFailedException):
        stale.table._append(table, {"kctl/x": 1}, [])

    assert at(storage) == StoredOffset(*TP, TOPIC_ID, 110, 1)
    assert "commit.retry.num-retries" not in lake.table().properties


def test_stored_offsets_survive_that_others_compact_and_expire_every_snapshot_of_ours(lake: Lake) -> None:
    storage = lake.begun_at(100)
    begun(storage, 100, 110).commit()
    table = lake.table()
    table.overwrite(table.scan().to_arrow())
    expire(lake.table())
    assert len(lake.table().snapshots()) == 1

    assert at(lake.opened()) == StoredOffset(*TP, TOPIC_ID, 110, 1)
    begun(storage, 110, 120).commit()

    assert lake.offsets() == list(range(100, 120))


def test_a_table_that_was_rolled_back_has_the_stored_offsets_of_the_rows_that_are_left(lake: Lake) -> None:
    storage = lake.begun_at(100)
    begun(storage, 100, 110).commit()
    snapshot = lake.table().current_snapshot()
    assert snapshot is not None
    begun(storage, 110, 120).commit()
    frozen = begun(storage, 120, 130)

    lake.table().manage_snapshots().rollback_to_snapshot(snapshot.snapshot_id).commit()
    with pytest.raises(StoredOffsetMoved):
        frozen.commit()

    assert at(storage) == StoredOffset(*TP, TOPIC_ID, 110, 1)
    begun(storage, 110, 120).commit()
    assert lake.offsets() == list(range(100, 120))


def test_stored_offsets_are_unknown_where_the_table_was_rolled_back_to_before_all_that_is_kept_of_them(
    lake: Lake,
) -> None:
    storage = lake.opened()
    append(lake.table())
    snapshot = lake.table().current_snapshot()
    assert snapshot is not None
    storage.init_offsets([StoredOffset(*TP, TOPIC_ID, 100)])
    begun(storage, 100, 110).commit()

    lake.table().manage_snapshots().rollback_to_snapshot(snapshot.snapshot_id).commit()

    assert at(storage) is None


def test_a_table_that_was_replaced_while_a_batch_was_written_does_not_get_it(lake: Lake) -> None:
    batch = begun(lake.begun_at(100), 100, 110)
    columns = lake.table().schema()
    lake.catalog.drop_table(NAME)
    lake.catalog.create_table(NAME, columns, location=f"file://{lake.path}")
    lake.opened().init_offsets([StoredOffset(*TP, TOPIC_ID, 100)])

    with pytest.raises(StorageUnusable, match="was replaced by another"):
        batch.commit()

    assert lake.offsets() == []


def test_commits_of_several_workers_are_none_in_vain_and_wait_for_none_that_is_frozen(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit_lock, "WAIT_SECONDS", 60.0)
    storages = [lake.opened(Binding(f"group-{number}", None)) for number in range(3)]

    def work(storage: IcebergStorage) -> None:
        storage.init_offsets([StoredOffset(*TP, TOPIC_ID, 0)])
        for start in range(5):
            begun(storage, start, start + 1).commit()

    with ThreadPoolExecutor(len(storages)) as threads:
        list(threads.map(work, storages))

    assert lake.offsets() == sorted([*range(5)] * len(storages))
    assert [each.table.commits_retried for each in storages] == [0] * len(storages)

    monkeypatch.setattr(commit_lock, "WAIT_SECONDS", 0.1)
    with storages[0].folder.lock("_kctl/commit.lock") as is_ours:
        assert is_ours
        begun(storages[0], 5, 6).commit()


RACER = """
import sys
from pathlib import Path
from kctl_agent.storage.base import StoredOffsetMoved
from tests.unit.storage.lake.iceberg.tables import Lake
from tests.unit.storage.lake.test_storage import TP, at, begun
lake = Lake(Path(sys.argv[1]))
storage = lake.opened()
stored = 0
while (now := at(storage)).next < int(sys.argv[2]):
    try:
        stored += sum(file.rows for file in begun(storage, now.next, now.next + 3).commit())
    except StoredOffsetMoved:
        pass
print(stored, storage.table.commits_retried)
lake.close()
"""


def test_processes_that_race_for_the_same_offsets_store_each_once_beside_another_writer(lake: Lake) -> None:
    lake.begun_at(0)
    racers = [
        subprocess.Popen([sys.executable, "-c", RACER, str(lake.folder), "30"], stdout=subprocess.PIPE, cwd=ROOT)
        for _ in range(2)
    ]
    added = 0
    while any(each.poll() is None for each in racers):
        with suppress(CommitFailedException):  # pyiceberg gives up where others come first four times
            lake.table().append(rows([-1]))
            added += 1
    outputs = [each.communicate()[0].split() for each in racers]

    assert [each.returncode for each in racers] == [0, 0]
    assert lake.offsets() == [-1] * added + list(range(30))
    assert sum(int(stored) for stored, _ in outputs) == 30
