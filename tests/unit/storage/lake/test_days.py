"""Partitions by days; Spark has dates in years that no reader of a table knows."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from kctl_agent.storage.base import TableRefused
from kctl_agent.storage.chunk import Advance, StoredOffset
from kctl_agent.storage.lake.storage import LakeStorage
from kctl_agent.storage.lake.table_storage import LakeBatch
from kctl_agent.table_maintenance import looked_after
from tests.lake_tables import GROUP, TOPIC_ID, TP, at, filled, opened, schema


def of_days(path: Path, *days: str) -> tuple[LakeStorage, LakeBatch]:
    made = opened(path, columns=schema(("n", "long"), ("day", "date")), start=0, partition_by=["day"])
    batch = made.begin([Advance(*TP, 1, 0, len(days))])
    for number, day in enumerate(days):
        filled(batch, pa.table({"n": [number]}), f"day={day}")
    return made, batch


@pytest.mark.shows("a date that readers cannot represent is rejected before it is stored")
@pytest.mark.parametrize("day", ["+10000-01-01", "0000-12-31", "-0044-03-15"])
def test_a_day_that_readers_of_the_table_do_not_support_is_rejected_before_it_is_stored(path: Path, day: str) -> None:
    made, batch = of_days(path, "2026-11-24", day)

    with pytest.raises(TableRefused, match=re.escape(f"a row of the batch is of {day} in day, by which")):
        batch.commit()

    assert at(made) == StoredOffset(*TP, TOPIC_ID, 0, 1)
    assert not Path(batch.folder.uri).exists()
    assert DeltaTable(path).to_pyarrow_table().num_rows == 0


def test_the_first_and_the_last_day_and_none_are_stored(path: Path) -> None:
    _, batch = of_days(path, "0001-01-01", "9999-12-31", "__HIVE_DEFAULT_PARTITION__")

    batch.commit()

    assert DeltaTable(path).to_pyarrow_table().num_rows == 3


def test_maintenance_reports_a_table_of_which_delta_rs_can_make_nothing_and_does_the_rest(path: Path) -> None:
    made, batch = of_days(path, "2026-11-24")
    batch.commit()
    version = DeltaTable(path).version()
    entry = path / "_delta_log" / f"{version:020}.json"
    far = entry.read_text().replace("2026-11-24", "+10000-01-01")  # a value that another writer may leave
    entry.with_name(f"{version + 1:020}.json").write_text(far)

    done, failed = looked_after(made, GROUP.group)

    assert (done, failed) == ([], ["ValueError: year 10000 is out of range"])
    assert (path / "_kctl" / "vacuumed").exists()
