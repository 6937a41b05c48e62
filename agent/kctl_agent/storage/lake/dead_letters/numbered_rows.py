"""Requeued dead letters in their table: rows with the number of their request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from kctl_agent.storage.chunk import Binding
from kctl_agent.storage.lake.dead_letters.selection import READING, Condition, of_cluster, than
from kctl_agent.storage.lake.delta.log import own_file

NUMBER = "requeue"
TRIES = "tries"
COORDINATES = ["topic", "partition", "offset"]
CONDITIONS = frozenset({"group", "cluster", *COORDINATES, "failed_at", NUMBER, READING})


def numbered(owner: Binding, above: int, up_to: int) -> Condition:
    of_owner = than("group", "=", owner.group) & of_cluster(owner.cluster_id)
    return of_owner & than(NUMBER, ">", above) & than(NUMBER, "<=", up_to)


def count(table: DeltaTable, wanted: Condition) -> tuple[int, int]:
    found = read(table, COORDINATES, wanted)
    copies = found.group_by(COORDINATES).aggregate([([], "count_all")])["count_all"]
    return found.num_rows, pc.max(copies).as_py() or 0


def read(table: DeltaTable, columns: Sequence[str], wanted: Condition) -> pa.Table:
    return pa.concat_tables(batches(table, columns, wanted))


def batches(table: DeltaTable, columns: Sequence[str], wanted: Condition) -> Iterator[pa.Table]:
    schema = table.to_pyarrow_dataset().schema
    yield pa.schema([schema.field(name) for name in columns]).empty_table()
    for _, rows in parts(table, columns, wanted):
        yield rows


def parts(table: DeltaTable, columns: Sequence[str], wanted: Condition) -> Iterator[tuple[str, pa.Table]]:
    """Yields the file with the oldest row first. Uses pyarrow, because a query of delta-rs holds the interpreter while
    a store does not answer, which blocks the whole process."""
    try:
        dataset = table.to_pyarrow_dataset()
        of_condition = [name for name in dataset.schema.names if name in CONDITIONS]
        columns = list(columns)
        actions = table.get_add_actions(flatten=True)
        known = [name for name in ("path", "min.failed_at") if name in actions.schema.names]
        began = dict(zip(*(actions.column(name).to_pylist() for name in known), strict=True)) if known[1:] else {}
        for file in sorted(dataset.get_fragments(filter=wanted.files), key=lambda each: str(began.get(each.path))):
            # The scan cannot filter: it would compare statistics of files with delta-rs' type `string_view`.
            for rows in file.to_batches(schema=dataset.schema, columns=list({*of_condition, *columns})):
                yield file.path, pa.Table.from_batches([rows]).filter(wanted.rows).select(columns)
    except pa.ArrowException as error:  # a damaged file, or one of another type
        raise OSError(5, str(error)) from error


def numbered_files(table: DeltaTable) -> list[str]:
    actions = table.get_add_actions(flatten=True)
    nulls = f"null_count.{NUMBER}"
    columns = ["path", "num_records", *([nulls] if nulls in actions.schema.names else [])]
    files = zip(*(actions.column(name).to_pylist() for name in columns), strict=True)
    return [own_file(name) for name, *counts in files if None in counts or len(counts) < 2 or counts[0] != counts[1]]
