"""Dead letters that were put back, in their table: they have a number, that of the request for them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from kctl_agent.storage.base import Binding
from kctl_agent.storage.lake.log import own_file
from kctl_agent.storage.lake.selection import READING, of_cluster, quoted

if TYPE_CHECKING:
    from deltalake import DeltaTable

__all__ = ["FIELDS", "NUMBER", "TRIES", "count", "fields", "has_column", "numbered", "numbered_files", "rows"]

NUMBER = "requeue"
"""The column of a dead letter's request; null: nobody has asked for it."""
TRIES = "tries"
"""The column that counts how often a message became a dead letter; null, in rows of earlier commits, is 1."""
FIELDS = [
    {"name": NUMBER, "type": "long", "nullable": True, "metadata": {}},
    {"name": TRIES, "type": "integer", "nullable": True, "metadata": {}},
    {"name": READING, "type": "string", "nullable": True, "metadata": {}},
]


def has_column(table: DeltaTable, name: str) -> bool:
    """Whether a table of dead letters has this column; those of earlier commits lack some."""
    return any(field["name"] == name for field in fields(table))


def numbered(owner: Binding, above: int, up_to: int) -> str:
    rows = f'"group" = {quoted(owner.group)} and {of_cluster(owner.cluster_id)}'
    return f"{rows} and {NUMBER} > {above} and {NUMBER} <= {up_to}"


def count(table: DeltaTable, wanted: str) -> tuple[int, int]:
    """How many rows there are, and how many of the most frequent coordinates."""
    copies = f'select count(*) as copies from dead where {wanted} group by topic, "partition", "offset"'  # noqa: S608
    query = f"select coalesce(sum(copies), 0) as messages, coalesce(max(copies), 0) as copies from ({copies})"  # noqa: S608
    [row] = rows(table, query)
    return int(row["messages"]), int(row["copies"])


def rows(table: DeltaTable, query: str) -> list[dict[str, Any]]:
    """What a query of the table `dead` finds."""
    import pyarrow as pa
    from deltalake import QueryBuilder

    found = QueryBuilder().register("dead", table).execute(query)
    return [row for batch in found for row in pa.record_batch(batch).to_pylist()]


def numbered_files(table: DeltaTable) -> list[str]:
    """Those that may have rows of a request, by the log's statistics."""
    actions = table.get_add_actions(flatten=True)
    nulls = f"null_count.{NUMBER}"
    columns = ["path", "num_records", *([nulls] if nulls in actions.schema.names else [])]
    files = zip(*(actions.column(name).to_pylist() for name in columns), strict=True)
    return [own_file(name) for name, *counts in files if None in counts or len(counts) < 2 or counts[0] != counts[1]]


def fields(table: DeltaTable) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(table.schema().to_json())["fields"]
    return found
