"""A selection as a condition of SQL. Pure."""

from __future__ import annotations

from kctl_agent.storage.selection import Selection


def condition(selection: Selection) -> tuple[str, list[object]]:
    """On topic, partition, first, last, and its values; times aside. Raises StorageError: not of what waits."""
    chosen = selection.of_blocks()
    return where(
        ("1=?", 1),
        ("topic=?", chosen.topic),
        ("partition=?", chosen.partition),
        ("last>=?", chosen.offset_from),
        ("first<=?", chosen.offset_to),
    )


def where(*clauses: tuple[str, object]) -> tuple[str, list[object]]:
    """Clauses of SQL, each with its value, as one with all values; without those that have none."""
    given = [(clause, value) for clause, value in clauses if value is not None]
    return " and ".join(clause for clause, _ in given), [value for _, value in given]
