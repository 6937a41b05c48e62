"""Numbers of requests to requeue dead letters: in the rows of their table, and as `txn` actions of both tables that
show the progress of each step.

A request has one number for all clusters with a group of this name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import quote

import pyarrow.compute as pc
from deltalake import DeltaTable

from kctl_agent.errors import StorageError
from kctl_agent.storage.chunk import Binding
from kctl_agent.storage.lake.dead_letters.search import COORDINATES, read
from kctl_agent.storage.lake.dead_letters.selection import NUMBER, Condition, of_cluster, than
from kctl_agent.storage.lake.delta.log import own_file
from kctl_agent.storage.lake.delta.log_state import LogState
from kctl_agent.storage.lake.table_storage import TableStorage

PUT_BACK = "kctl/requeued/"
CANCELLED = -1
"""Replaces the name of the folder for remaining dead letters, if all of them remain."""


class RequeueTaken(StorageError):
    """Another process has requeued the dead letters of a table, or cancelled that; nothing was written."""

    code = "requeue_taken"
    retriable = True


@dataclass(frozen=True, slots=True)
class RequeueState:
    """The number 0 means that there is none. `table` and `dead` are the tables' ids, `version` the main table's."""

    table: str
    version: int
    stored: int
    """The request up to which rows are in the table; `kept` names the folder of the remaining dead letters, or is
    CANCELLED."""
    kept: int
    above: int
    dead: str
    dead_version: int
    requested: int
    finished: int


class RequeueNumbers:
    def __init__(self, lake: TableStorage, dead: TableStorage, owner: Binding) -> None:
        self._lake = lake
        self._dead = dead
        self._group = quote(owner.group, safe="")
        self.asked = f"kctl/requeue/{self._group}"
        self.put_back = f"{PUT_BACK}{quote(owner.cluster_id or '-', safe='')}/{self._group}"

    def requested(self) -> int:
        with self._dead.table.state() as table:
            return table.transaction_version(self.asked) or 0

    def state(self) -> RequeueState:
        with self._lake.table.state() as table:
            id_, version = table.id, table.version
            stored, kept, above = (table.transaction_version(name) or 0 for name in _of_batch(self.put_back))
        with self._dead.table.state() as table:
            return RequeueState(
                id_,
                version,
                stored,
                kept,
                above,
                table.id,
                table.version,
                table.transaction_version(self.asked) or 0,
                table.transaction_version(self.finished(id_)) or 0,
            )

    def of_batch(self, number: int, kept: int, above: int) -> dict[str, int]:
        return dict(zip(_of_batch(self.put_back), (number, kept, above), strict=True))

    def finished(self, table_id: str) -> str:
        """Names a number in the dead-letter table; another main table starts again there too."""
        return f"{self.put_back}/{table_id}"

    def highest_put_back(self) -> int:
        """The highest number of all clusters; above the newest request only if the dead-letter table was replaced."""
        with self._lake.table.state() as table:
            names = [each for each in table.transaction_names() if each.startswith(PUT_BACK)]
            numbers = [table.transaction_version(each) or 0 for each in names if each.split("/")[3:] == [self._group]]
            return max(numbers, default=0)


def _of_batch(name: str) -> tuple[str, str, str]:
    return name, f"{name}/kept", f"{name}/above"


def unmoved(name: str, before: int) -> Callable[[LogState], None]:
    def check(table: LogState) -> None:
        if (table.transaction_version(name) or 0) != before:
            raise RequeueTaken(
                "another process has put these dead letters back, or cancelled that; nothing was written"
            )

    return check


def numbered(owner: Binding, above: int, up_to: int) -> Condition:
    of_owner = than("group", "=", owner.group) & of_cluster(owner.cluster_id)
    return of_owner & than(NUMBER, ">", above) & than(NUMBER, "<=", up_to)


def count(table: DeltaTable, wanted: Condition) -> tuple[int, int]:
    found = read(table, COORDINATES, wanted)
    copies = found.group_by(COORDINATES).aggregate([([], "count_all")])["count_all"]
    return found.num_rows, pc.max(copies).as_py() or 0


def numbered_files(table: DeltaTable) -> list[str]:
    actions = table.get_add_actions(flatten=True)
    nulls = f"null_count.{NUMBER}"
    columns = ["path", "num_records", *([nulls] if nulls in actions.schema.names else [])]
    files = zip(*(actions.column(name).to_pylist() for name in columns), strict=True)
    return [own_file(name) for name, *counts in files if None in counts or len(counts) < 2 or counts[0] != counts[1]]
