import os
import time
from pathlib import Path

import pytest
from deltalake import DeltaTable

from kctl_agent.storage.base import StorageUnusable
from kctl_agent.storage.lake.delta import batch_plans as plans
from kctl_agent.storage.lake.delta.batch_plans import GIVEN_UP_SECONDS, BatchPlan, plan_name, sweep
from kctl_agent.storage.lake.folder import LocalFolder
from kctl_agent.storage.lake.storage import LakeStorage
from tests.lake_tables import begun, offsets, opened


def committed_and_killed(storage: LakeStorage, monkeypatch: pytest.MonkeyPatch, start: int, end: int) -> int:
    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", lambda *_, **__: None)  # it dies before it removes the plan
        begun(storage, start, end).commit()
    return DeltaTable(storage.folder.uri).version()


@pytest.mark.shows("files are removed only if they belong to a batch that can never be committed")
def test_committed_files_stay_when_replaced(storage: LakeStorage, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    version = committed_and_killed(storage, monkeypatch, 100, 110)
    begun(storage, 110, 120).commit()
    assert DeltaTable(path).optimize.compact()["numFilesRemoved"] == 2

    begun(opened(path), 120, 130).commit()
    sweep(storage.table)

    assert not list((path / "_kctl").iterdir())
    assert sorted(DeltaTable(path, version=version).to_pyarrow_table()["offset"].to_pylist()) == list(range(100, 110))
    assert offsets(path) == list(range(100, 130))


def test_unknown_files_are_left_to_vacuum(storage: LakeStorage, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    committed_and_killed(storage, monkeypatch, 100, 110)
    begun(storage, 110, 120).commit()
    DeltaTable(path).optimize.compact()
    DeltaTable(path).create_checkpoint()
    for entry in sorted((path / "_delta_log").glob("*.json"))[:-1]:
        entry.unlink()
    files = set(path.glob("kctl-*/*"))

    begun(opened(path), 120, 130).commit()
    sweep(storage.table)

    assert not list((path / "_kctl").iterdir())
    assert files < set(path.glob("kctl-*/*"))


def test_a_damaged_plan_is_removed_and_its_files_are_left(storage: LakeStorage, path: Path) -> None:
    batch = begun(storage, 100, 110)
    (plan,) = (path / "_kctl").iterdir()
    plan.write_bytes(b"\0" * 40)

    begun(opened(path), 100, 110).commit()
    sweep(storage.table)

    assert not list((path / "_kctl").iterdir())
    assert list(Path(batch.folder.uri).iterdir())


def test_a_batch_of_unknown_end_is_left(storage: LakeStorage, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    killed = begun(storage, 100, 110)
    DeltaTable(path).alter.set_table_properties({"delta.checkpointInterval": "50"})
    begun(opened(path), 100, 110).commit()
    monkeypatch.setattr(plans, "MOST_ENTRIES", 1)

    sweep(storage.table)

    assert not list((path / "_kctl").iterdir())
    assert Path(killed.folder.uri).exists()


@pytest.mark.parametrize("name", ["_delta_log.json", ".json", "...json", "kctl-.json", "kctl-..json", "kctl-0/0.json"])
def test_a_file_named_like_no_batch_removes_nothing(storage: LakeStorage, path: Path, name: str) -> None:
    beside = path.parent / "beside"
    beside.write_text("of somebody else")
    plan = path / "_kctl" / name
    plan.parent.mkdir(parents=True, exist_ok=True)
    plan.write_text('{"version": 0, "offsets": {"of no batch": [1, 1]}}')

    sweep(storage.table)

    assert beside.exists()
    assert (path / "_delta_log").is_dir()
    assert plan.exists()


def test_a_plan_that_cannot_be_written_leaves_nothing(path: Path) -> None:
    place = path / plan_name("kctl-1")
    place.mkdir(parents=True)

    with pytest.raises(StorageUnusable, match="cannot be written: Is a directory"):
        BatchPlan(0, {}).write(LocalFolder(path), "kctl-1")

    assert list(place.parent.iterdir()) == [place]


def test_of_a_batch_that_fails_for_days_no_plan_is_older_than_a_day(storage: LakeStorage, path: Path) -> None:
    failed, failed_lately = begun(storage, 100, 110), begun(storage, 100, 110)
    frozen = begun(storage, 100, 110)
    old = time.time() - GIVEN_UP_SECONDS - 1
    for batch in (failed, frozen):
        os.utime(path / plan_name(batch.folder.name), (old, old))
    for batch in (failed, failed_lately):
        batch.discard()

    sweep(storage.table)

    assert {plan.stem for plan in (path / "_kctl").iterdir()} == {failed_lately.folder.name, frozen.folder.name}
    frozen.commit()
    assert offsets(path) == list(range(100, 110))


def test_a_given_up_plan_keeps_its_files(storage: LakeStorage, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frozen = begun(storage, 100, 110)

    def given_up(*_: object) -> bool:
        frozen.commit()
        return True

    monkeypatch.setattr(plans, "_is_given_up", given_up)

    sweep(opened(path).table)

    assert offsets(path) == list(range(100, 110))
    assert not list((path / "_kctl").iterdir())
