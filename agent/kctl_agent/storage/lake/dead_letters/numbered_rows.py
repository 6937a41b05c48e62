"""Dead letters that were put back, in their table: they have a number, that of the request for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from kctl_agent.storage.chunk import Binding
from kctl_agent.storage.lake.dead_letters.selection import READING, Condition, of_cluster, than
from kctl_agent.storage.lake.delta.log import own_file

NUMBER = "requeue"
"""The column of a dead letter's request; null: nobody has asked for it."""
TRIES = "tries"
"""The column that counts how often a message became a dead letter."""
COORDINATES = ["topic", "partition", "offset"]
CONDITIONS = frozenset({"group", "cluster", *COORDINATES, "failed_at", NUMBER, READING})
"""The columns that a condition may be about."""


def numbered(owner: Binding, above: int, up_to: int) -> Condition:
    of_owner = than("group", "=", owner.group) & of_cluster(owner.cluster_id)
    return of_owner & than(NUMBER, ">", above) & than(NUMBER, "<=", up_to)


def count(table: DeltaTable, wanted: Condition) -> tuple[int, int]:
    """How many rows there are, and how many of the most frequent coordinates."""
    found = read(table, COORDINATES, wanted)
    copies = found.group_by(COORDINATES).aggregate([([], "count_all")])["count_all"]
    return found.num_rows, pc.max(copies).as_py() or 0


def read(table: DeltaTable, columns: Sequence[str], wanted: Condition) -> pa.Table:
    """These columns of the rows. Raises OSError, and what delta-rs raises."""
    return pa.concat_tables(batches(table, columns, wanted))


def batches(table: DeltaTable, columns: Sequence[str], wanted: Condition) -> Iterator[pa.Table]:
    """The same, part by part; the first one is empty. By pyarrow: a query of delta-rs holds the interpreter for as long
    as a store does not answer, and the whole process stands still."""
    try:
        dataset = table.to_pyarrow_dataset()
        schema = pa.schema([dataset.schema.field(name) for name in columns])
        of_condition = [name for name in dataset.schema.names if name in CONDITIONS]
        columns = list(columns)
        yield schema.empty_table()
        for file in dataset.get_fragments(filter=wanted.files):
            # Not filtered by the scan: it compares with statistics of files as what delta-rs writes, `string_view`.
            parts = file.to_batches(schema=dataset.schema, columns=list({*of_condition, *columns}))
            for rows in parts:
                yield pa.Table.from_batches([rows]).filter(wanted.rows).select(columns)
    except pa.ArrowException as error:  # a file is damaged, or of another type
        raise OSError(5, str(error)) from error


def numbered_files(table: DeltaTable) -> list[str]:
    """Those that may have rows of a request, by the log's statistics."""
    actions = table.get_add_actions(flatten=True)
    nulls = f"null_count.{NUMBER}"
    columns = ["path", "num_records", *([nulls] if nulls in actions.schema.names else [])]
    files = zip(*(actions.column(name).to_pylist() for name in columns), strict=True)
    return [own_file(name) for name, *counts in files if None in counts or len(counts) < 2 or counts[0] != counts[1]]
