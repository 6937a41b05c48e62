"""Kafka to an Iceberg table, each message once: counted in the table by pyiceberg, whatever is killed meanwhile."""

from __future__ import annotations

import json
import os
import random
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyiceberg.utils.concurrent import ExecutorFactory

from tests.acceptance.fleets import START_SECONDS, Eventually, Fleet

pytestmark = [pytest.mark.real]

KILLS = 2
NAME = "sales.orders"


class Lake:
    """A table in a folder, with a catalog in a SQLite file beside it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "orders"
        self.uri = f"sqlite:///{folder}/catalog.db"
        self._catalog: SqlCatalog | None = None

    def settings(self, more: str = "") -> str:
        return (
            f'mode = "lake"\nformat = "iceberg"\nuri = "{self.path.as_uri()}"\ntable = "{NAME}"\n'
            f'catalog = {{ type = "sql", uri = "{self.uri}" }}\n{more}'
        )

    def table(self) -> Table:
        """As another program has it."""
        self._catalog = self._catalog or SqlCatalog("default", uri=self.uri)
        return self._catalog.load_table(NAME)

    def snapshots(self) -> int:
        return self.table().metadata.last_sequence_number  # type: ignore[union-attr]

    def columns(self, *names: str) -> pa.Table:
        return self.table().scan(selected_fields=names or ("*",)).to_arrow()

    def places(self) -> Counter[tuple[str, int, int]]:
        """How often each offset is in the table."""
        columns = self.columns("topic", "partition", "offset").to_pydict()
        return Counter(zip(columns["topic"], columns["partition"], columns["offset"], strict=True))

    def close(self) -> None:
        if self._catalog is not None:
            self._catalog.close()
        if ExecutorFactory._instance is not None:
            ExecutorFactory._instance.shutdown()
            ExecutorFactory._instance = None


@pytest.fixture
def lake(short_dir: Path) -> Iterator[Lake]:
    made = Lake(short_dir)
    yield made
    made.close()


def sent(fleet: Fleet) -> Counter[tuple[str, int, int]]:
    return Counter({(fleet.topic, tp.partition, at): 1 for tp, count in fleet.sent.items() for at in range(count)})


def positions(lake: Lake, fleet: Fleet) -> dict[int, int]:
    """Of each partition, what the newest snapshot has in its summary; read without kctl."""
    snapshot = lake.table().current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    [text] = [
        text
        for name, text in snapshot.summary.additional_properties.items()
        if name.startswith("kctl.offsets/") and name.endswith(f"/{fleet.group}/{fleet.topic}")
    ]
    return {int(partition): offset for partition, offset in json.loads(text)["next"].items()}


def test_what_is_produced_is_in_an_iceberg_table_once_however_often_the_worker_is_killed(
    make_fleet: Callable[..., Fleet], eventually: Eventually, lake: Lake
) -> None:
    drawn = random.Random(int(os.environ.get("KCTL_TEST_SEED", "1")))
    fleet = make_fleet(partitions=3, storage=lake.settings())
    fleet.send(3000)
    fleet.start()
    eventually(fleet.is_caught_up, START_SECONDS, "all is committed")
    assert lake.places() == sent(fleet)

    load = fleet.load(2000)
    for _ in range(KILLS):
        before = lake.snapshots()
        eventually(lambda: lake.snapshots() > before + 1, START_SECONDS, "batches are stored")  # noqa: B023
        pid = fleet.workers()["worker-0"]["pid"]
        eventually(_later(drawn.uniform(0, 0.5)), 5, "the moment has come")
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: fleet.is_running("worker-0") and _pid(fleet) != pid, START_SECONDS, "it runs again")  # noqa: B023
    fleet.finish(load)
    eventually(fleet.is_caught_up, START_SECONDS, "all is committed")

    assert lake.places() == sent(fleet)
    assert positions(lake, fleet) == {tp.partition: count for tp, count in fleet.sent.items()}
    assert [column.name for column in lake.table().schema().columns] == [
        "topic", "partition", "offset", "timestamp", "timestampType", "key", "value", "headers",
    ]  # fmt: skip


def _pid(fleet: Fleet) -> Any:
    return fleet.workers()["worker-0"]["pid"]


def _later(seconds: float) -> Callable[[], bool]:
    import time

    deadline = time.monotonic() + seconds
    return lambda: time.monotonic() >= deadline
