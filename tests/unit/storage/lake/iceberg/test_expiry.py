"""Old snapshots of ours go with the commits of ours, and nothing that anybody needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kctl_agent.storage.base import StoredOffset
from kctl_agent.storage.lake import IcebergStorage
from kctl_agent.storage.lake.iceberg import expiry
from tests.unit.storage.lake.iceberg.tables import Lake
from tests.unit.storage.lake.test_storage import TOPIC_ID, TP, at, begun, rows

SOON = {expiry.AGE_MS: "0", expiry.LEAST: "3", "commit.manifest.min-count-to-merge": "4"}


@pytest.fixture
def storage(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> IcebergStorage:
    """Of a table of which all but three snapshots may go, five at a time."""
    made = lake.begun_at(0)
    with lake.table().transaction() as transaction:
        transaction.set_properties(SOON)
    monkeypatch.setattr(expiry, "STEP", 5)
    return made


def store(storage: IcebergStorage, batches: int) -> None:
    for _ in range(batches):
        stored = at(storage)
        assert stored is not None
        begun(storage, stored.next, stored.next + 2).commit()


def metadata_files(lake: Lake) -> set[str]:
    return {path.name for path in (lake.path / "metadata").glob("*.avro")}


def needed_files(lake: Lake) -> set[str]:
    """Of all snapshots that are there."""
    table = lake.table()
    lists = {Path(snapshot.manifest_list).name for snapshot in table.snapshots()}
    manifests = (each for snapshot in table.snapshots() for each in snapshot.manifests(table.io))
    return lists | {Path(each.manifest_path).name for each in manifests}


def test_old_snapshots_go_with_what_only_they_need_and_rows_and_stored_offsets_stay(
    lake: Lake, storage: IcebergStorage
) -> None:
    store(storage, 30)

    assert 4 <= len(lake.table().snapshots()) <= 3 + 5 + 1
    assert lake.offsets() == list(range(60))
    assert at(lake.opened()) == StoredOffset(*TP, TOPIC_ID, 60, 1)
    assert metadata_files(lake) >= needed_files(lake)
    left = metadata_files(lake) - needed_files(lake)
    assert (
        len(left) <= 30 / 3
    )  # of each merge, every third commit here, pyiceberg leaves the manifest that it began with


def test_young_snapshots_and_those_of_others_stay(lake: Lake, storage: IcebergStorage) -> None:
    store(storage, 2)
    lake.table().append(rows([-1]))
    theirs = lake.table().current_snapshot()
    store(storage, 12)
    with lake.table().transaction() as transaction:
        transaction.set_properties({expiry.AGE_MS: "3600000"})
    before = len(lake.table().snapshots())
    store(storage, 8)

    snapshots = lake.table().snapshots()
    assert theirs is not None
    assert theirs.snapshot_id in {snapshot.snapshot_id for snapshot in snapshots}
    assert len(snapshots) == before + 8
    assert lake.offsets() == [-1, *range(44)]


def test_snapshots_before_rows_were_rewritten_are_left_to_an_engine_that_removes_their_files(
    lake: Lake, storage: IcebergStorage
) -> None:
    store(storage, 4)
    lake.table().overwrite(lake.table().scan().to_arrow())
    before = {snapshot.snapshot_id for snapshot in lake.table().snapshots()}
    store(storage, 20)

    after = {snapshot.snapshot_id for snapshot in lake.table().snapshots()}
    assert before <= after
    assert len(after - before) < 10
    assert lake.offsets() == list(range(48))


def test_what_a_branch_or_a_tag_names_stays_readable(lake: Lake, storage: IcebergStorage) -> None:
    store(storage, 2)
    tagged = lake.table().current_snapshot()
    assert tagged is not None
    lake.table().manage_snapshots().create_tag(tagged.snapshot_id, "audit").commit()
    store(storage, 20)

    scan = lake.table().scan(snapshot_id=tagged.snapshot_id)
    assert sorted(scan.to_arrow()["offset"].to_pylist()) == [0, 1, 2, 3]
    assert metadata_files(lake) >= needed_files(lake)


def test_with_upkeep_off_every_snapshot_stays(lake: Lake, storage: IcebergStorage) -> None:
    keeping = lake.opened(is_expiring=False)
    before = len(lake.table().snapshots())
    store(keeping, 10)

    assert len(lake.table().snapshots()) == before + 10


def test_a_commit_does_not_fail_where_another_one_expires_what_it_was_about_to(
    lake: Lake, storage: IcebergStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeping = lake.opened(is_expiring=False)
    store(keeping, 10)
    other, unneeded_files = lake.opened(), expiry.unneeded_files
    batch = begun(storage, 20, 22)

    def overtaken(*args: Any) -> list[str]:
        monkeypatch.setattr(expiry, "unneeded_files", unneeded_files)
        other.init_offsets([StoredOffset("other", 0, None, 0)])
        return unneeded_files(*args)

    monkeypatch.setattr(expiry, "unneeded_files", overtaken)
    batch.commit()

    assert lake.offsets() == list(range(22))
    assert at(storage) == StoredOffset(*TP, TOPIC_ID, 22, 1)
    assert storage.table.commits_retried == 1
    assert metadata_files(lake) >= needed_files(lake)


def test_commits_go_on_where_a_list_of_manifests_is_gone_for_good(lake: Lake, storage: IcebergStorage) -> None:
    keeping = lake.opened(is_expiring=False)
    store(keeping, 10)
    Path(lake.table().snapshots()[3].manifest_list.removeprefix("file://")).unlink()
    before = len(lake.table().snapshots())

    store(storage, 3)

    assert lake.offsets() == list(range(26))
    assert len(lake.table().snapshots()) == before + 3
