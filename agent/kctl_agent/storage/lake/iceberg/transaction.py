"""A transaction of pyiceberg that is committed upon the version that was read, or not at all."""

from __future__ import annotations

from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata

__all__ = ["OneCommit"]

RETRIES = "commit.retry.num-retries"


class OneCommit(Transaction):
    """Of a table that was just read, and is used for nothing else."""

    def __init__(self, table: Table) -> None:
        super().__init__(table)
        # pyiceberg would try a commit that others got ahead of again upon what they have committed, with stored offsets
        # of before. It asks the table as it was read; what is set here goes nowhere else.
        table.metadata.properties[RETRIES] = "0"
        self._made: TableMetadata | None = None
        self._made_of: object = None

    @property
    def table_metadata(self) -> TableMetadata:
        """As it is with the updates until now. It is a copy of everything, and asked for a dozen times: 0.9 of the
        time of a commit upon 750 snapshots."""
        if self._made is None or self._made_of is not self._updates:
            self._made_of = self._updates
            self._made = super().table_metadata
        return self._made
