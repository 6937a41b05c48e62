"""The commits of an Iceberg table by way of a REST catalog that Iceberg's own handlers answer for, over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kctl_agent.storage.base import StorageUnusable
from tests.java_iceberg import JavaIceberg, java_iceberg
from tests.table_conformance import OpenTable, TableOffsets, opened
from tests.unit.storage.lake.iceberg.tables import Lake
from tests.unit.storage.lake.iceberg.test_commits import (  # noqa: F401 - one suite over both catalogs
    test_a_commit_between_the_check_and_the_write_is_noticed_by_the_catalog_itself,
    test_a_commit_is_not_repeated_by_pyiceberg_upon_what_others_have_committed,
    test_a_table_that_was_rolled_back_has_the_stored_offsets_of_the_rows_that_are_left,
    test_rows_and_stored_offset_are_one_commit,
    test_stored_offsets_survive_that_others_compact_and_expire_every_snapshot_of_ours,
    test_what_others_commit_between_the_check_and_the_write_is_no_hindrance,
)
from tests.unit.storage.lake.test_storage import TP, at, begun


@pytest.fixture(scope="module")
def java() -> Iterator[JavaIceberg]:
    with java_iceberg() as made:
        yield made


@pytest.fixture
def lake(tmp_path: Path, java: JavaIceberg) -> Iterator[Lake]:
    with java.rest_catalog(tmp_path) as url:
        made = Lake(tmp_path, type="rest", uri=url)
        yield made
        made.close()


class TestOffsets(TableOffsets):
    @pytest.fixture
    def open_table(self, lake: Lake) -> OpenTable:
        return lambda: opened(lake.storage())


def test_iceberg_itself_reads_the_rows_that_were_committed(lake: Lake, java: JavaIceberg) -> None:
    begun(lake.begun_at(100), 100, 103).commit()

    read = java.rows(lake.table().metadata_location, "topic", "partition", "offset", "timestamp")

    assert read == [("t", "0", f"{each}", f"1970-01-01T00:00:00.{each}Z") for each in (100, 101, 102)]


def test_a_catalog_that_is_away_is_one_sentence_and_the_batch_is_stored_once_it_is_back(
    tmp_path: Path, java: JavaIceberg
) -> None:
    with java.rest_catalog(tmp_path) as url:
        lake = Lake(tmp_path, type="rest", uri=url)
        storage = lake.begun_at(100)
        batch = begun(storage, 100, 110)
    with pytest.raises(StorageUnusable, match=r"^the table sales.orders or its catalog cannot be used: .*refused"):
        batch.commit()

    with java.rest_catalog(tmp_path) as url:
        lake.properties["uri"] = url
        again = lake.opened()
        begun(again, 100, 110).commit()

        assert lake.offsets() == list(range(100, 110))
        assert at(again) == at(lake.opened())
    lake.close()
    assert TP in batch.moves
