"""`kctl storage` of a fleet whose table is an Iceberg one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kctl_agent.storage.base import Binding, StoredOffset
from kctl_agent.storage.lake.dead_letters import DeadLetterTable
from tests.unit.storage.lake.iceberg.tables import NAME, Lake
from tests.unit.storage.lake.test_dead_letters import written
from tests.unit.storage.lake.test_storage import begun

if TYPE_CHECKING:
    from tests.unit.kctl_cli.conftest import Kctl


@pytest.fixture
def lake(short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lake]:
    made = Lake(short_dir)
    config = short_dir / "kctl.toml"
    config.write_text(
        '[kafka]\nbootstrap_servers = "b:1"\ngroup = "g"\ntopics = ["t"]\n[storage]\nmode = "lake"\n'
        f'format = "iceberg"\nuri = "{made.path.as_uri()}"\ntable = "{NAME}"\n'
        f'catalog = {{ type = "sql", uri = "{made.properties["uri"]}" }}\n'
    )
    monkeypatch.setenv("KCTL_CONFIG", str(config))
    yield made
    made.close()


def test_its_rows_files_bytes_and_stored_offsets_are_printed(kctl: Kctl, lake: Lake) -> None:
    missing = kctl("storage", "status")
    storage = lake.opened(Binding("g", "cluster-1"))
    storage.init_offsets([StoredOffset("t", 0, None, 0)])
    begun(storage, 0, 10).commit()
    status = kctl("storage", "status", "-o", "json")
    text = kctl("storage", "status")

    assert (missing.code, "the catalog has no table sales.orders (storage.table)" in missing.err) == (1, True)
    document = json.loads(status.out)
    assert (document["version"], document["rows"], document["files"], document["dead"]) == (2, 10, 1, 0)
    assert document["small_files"] is None
    assert document["bytes"] == sum(path.stat().st_size for path in lake.path.glob("kctl-*/*.parquet"))
    assert document["partitions"] == [{"cluster": "cluster-1", "topic": "t", "partition": 0, "stored": 10}]
    assert 0 <= document["last_commit_seconds"] < 60
    assert [line.split()[:4] for line in text.out.splitlines()[2:4]] == [
        ["version", "rows", "files", "small-files"],
        ["2", "10", "1", "-"],
    ]


def test_nothing_is_made_by_reading_what_is_not_there(kctl: Kctl, lake: Lake) -> None:
    before = sorted(lake.folder.rglob("*"))

    ran = [kctl(*words) for words in (("storage", "status"), ("storage", "dead", "list"), ("config", "check"))]

    assert [each.code for each in ran] == [1, 0, 0]
    assert sorted(lake.folder.rglob("*")) == before


def test_a_catalog_whose_folder_does_not_exist_is_one_sentence_that_names_it(kctl: Kctl, lake: Lake) -> None:
    config = lake.folder / "kctl.toml"
    config.write_text(config.read_text().replace("/catalog.db", "/none/x y/catalog.db"))

    checked, status = kctl("config", "check"), kctl("storage", "status")

    sentence = (
        f"the folder {lake.folder}/none/x y, in which the catalog of storage.catalog is to be made, does not exist: "
        f"mkdir -p '{lake.folder}/none/x y'\n"
    )
    assert (checked.code, checked.out, checked.err) == (2, "", f"kctl: {config}: {sentence}")
    assert (status.code, status.out, status.err) == (1, "", f"kctl: {sentence}")
    config.write_text(config.read_text().replace("/none/x y/catalog.db", "/kctl.toml/catalog.db"))
    assert (
        "kctl.toml, in which the catalog of storage.catalog is to be made, is no folder" in kctl("config", "check").err
    )


@pytest.mark.parametrize("command", ["optimize", "vacuum"])
def test_its_files_are_left_to_the_engine_beside(kctl: Kctl, lake: Lake, command: str) -> None:
    ran = kctl("storage", command)

    assert ran.code == 2
    assert 'storage.format is "iceberg": its files are compacted and removed by the engine' in ran.err


def test_its_dead_letters_are_put_back_and_that_is_cancelled(kctl: Kctl, lake: Lake) -> None:
    storage = lake.opened(Binding("g", "cluster-1"))
    storage.init_offsets([StoredOffset("t", 0, None, 0)])
    written(DeadLetterTable(storage, "g"), begun(storage, 0, 10), [3, 7], group="g").commit()
    ran = kctl("storage", "requeue", "--dead", "--topic", "t", "--offset-to", "3")
    cancelled = kctl("storage", "requeue", "--cancel")

    assert ran.out == "1 message put back\n"
    assert cancelled.out == "1 message that was put back is a dead letter again\n"
    assert [row["offset"] for row in json.loads(kctl("storage", "dead", "list", "-o", "json").out)["rows"]] == [3, 7]
