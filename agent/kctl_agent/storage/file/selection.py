"""A selection as a condition of SQL. Pure."""

from __future__ import annotations

from kctl_agent.storage.selection import Selection

__all__ = ["condition"]


def condition(selection: Selection) -> tuple[str, list[object]]:
    """On topic, partition, first, last, and its values; times aside. Raises StorageError: what waits cannot be chosen
    by it."""
    chosen = selection.of_blocks()
    clauses: list[tuple[str, object]] = [("1=?", 1)]
    for clause, value in (
        ("topic=?", chosen.topic),
        ("partition=?", chosen.partition),
        ("last>=?", chosen.offset_from),
        ("first<=?", chosen.offset_to),
    ):
        if value is not None:
            clauses.append((clause, value))
    return " and ".join(clause for clause, _ in clauses), [value for _, value in clauses]
