"""A selection as a condition of SQL. Pure."""

from __future__ import annotations

from kctl_agent.storage.claim import Selection

__all__ = ["condition"]


def condition(selection: Selection, at: str | None = None, wall: float = 0.0) -> tuple[str, list[object]]:
    """On topic, partition, first, last; and on the column `at`, in Unix seconds, if one is given. With its values."""
    clauses: list[tuple[str, object]] = [("1=?", 1)]
    for clause, value in (
        ("topic=?", selection.topic),
        ("partition=?", selection.partition),
        ("last>=?", selection.offset_from),
        ("first<=?", selection.offset_to),
    ):
        if value is not None:
            clauses.append((clause, value))
    if at is not None and selection.older_than_seconds is not None:
        clauses.append((f"{at}<=?", wall - selection.older_than_seconds))
    return " and ".join(clause for clause, _ in clauses), [value for _, value in clauses]
