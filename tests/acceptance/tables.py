"""Tables that fleets fill in the acceptance tests, as delta-rs and Delta's own Spark read them."""

import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import psutil
from deltalake import DeltaTable

from tests.acceptance.delta_spark import DeltaSpark
from tests.acceptance.fleets import Fleet
from tests.conftest import eventually
from tests.object_store_server import ObjectStoreServer

STEP = 5000  # offsets of a query

Places = Counter[tuple[str, int, int]]


class Lake:
    def __init__(self, folder: Path) -> None:
        self.path = folder / "orders"
        self.dead_letters_path = folder / "orders_dead_letters"

    def settings(self, more: str = "") -> str:
        return lake(self.path, more)

    def opened(self) -> DeltaTable:
        return DeltaTable(self.path)

    def places(self) -> Places:
        return places(self.path)

    def paths(self) -> set[str]:
        """Files of batches, including those that are not in the table."""
        return {str(path.relative_to(self.path)) for path in self.path.glob("kctl-*/**/*") if path.is_file()}

    def dead_letters(self) -> Places:
        return places(self.dead_letters_path)

    def rows(self) -> int:
        return DeltaTable(self.path).count()


class StoredLake:
    def __init__(self, server: ObjectStoreServer) -> None:
        self._server = server

    @property
    def secret(self) -> str:
        assert self._server.keys is not None
        return self._server.keys.secret

    def settings(self, more: str = "", **given: str) -> str:
        settings = self._server.settings("orders", **given)
        named = [f'{name} = "{settings[name]}"' for name in ("uri", "endpoint", "credentials_file")]
        return "\n".join(['mode = "lake"', *named, more])

    def opened(self) -> DeltaTable:
        folder = self._server.folder("orders")
        return DeltaTable(folder.uri, storage_options=folder.options)

    def places(self) -> Places:
        return places(self.opened())

    def be_away(self, seconds: float) -> None:
        self._server.kill()
        eventually(later(seconds), 2 * seconds, "it was away for so long")
        self._server.start()

    def paths(self) -> set[str]:
        return {file.name for file in self._server.folder("orders").files() if file.name.startswith("kctl-")}


def lake(table: Path, more: str = "") -> str:
    return f'mode = "lake"\nuri = "{table.as_uri()}"\n{more}'


def places(table: Path | DeltaTable) -> Places:
    opened = table if isinstance(table, DeltaTable) else DeltaTable(table)
    columns = opened.to_pyarrow_table(columns=["topic", "partition", "offset"]).to_pydict()
    return Counter(zip(columns["topic"], columns["partition"], columns["offset"], strict=True))


def places_by_statistics(delta: DeltaSpark, table: Path, ends: Mapping[int, int]) -> Places:
    """What Delta's own Spark finds of these partitions, up to these offsets. It asks with many predicates on columns
    with statistics, each of which skips most of the files."""
    found: Places = Counter()
    for partition, end in ends.items():
        for start in range(0, end, STEP):
            condition = f"partition = {partition} and offset >= {start} and offset < {start + STEP}"
            query = f"select topic, partition, offset from delta.`{table}` where {condition}"
            found.update((topic, number, offset) for topic, number, offset in delta.sql(query).rows)
    return found


def sent(fleet: Fleet) -> Places:
    return Counter({(fleet.topic, tp.partition, at): 1 for tp, count in fleet.sent.items() for at in range(count)})


def later(seconds: float) -> Callable[[], bool]:
    at = time.monotonic() + seconds
    return lambda: time.monotonic() >= at


def shows_no_key(fleet: Fleet, secret: str, *executors: psutil.Process) -> None:
    processes = [*fleet.family(), *executors]
    assert not [each for each in processes if secret in f"{each.cmdline()} {each.environ()}"]
    shown = [fleet.kctl("config", "show").stdout, fleet.kctl("storage", "status").stdout]
    logs = [file for file in fleet.directory.rglob("*") if file.is_file() and secret.encode() in file.read_bytes()]
    assert (logs, [text for text in shown if secret in text]) == ([], [])


def look_after(fleet: Fleet) -> None:
    """Compacts, and removes all files that only older versions have, also while a batch runs."""
    fleet.kctl("storage", "optimize")
    fleet.kctl("storage", "vacuum", "--retention-hours", "0", "--yes")
