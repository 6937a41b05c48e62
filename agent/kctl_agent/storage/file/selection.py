"""Translates a selection to an SQL condition. Pure."""

from __future__ import annotations

from kctl_agent.storage.selection import Selection


def condition(selection: Selection) -> tuple[str, list[object]]:
    """Ignores times. Raises StorageError for criteria of dead letters."""
    chosen = selection.of_blocks()
    return where(
        ("1=?", 1),
        ("topic=?", chosen.topic),
        ("partition=?", chosen.partition),
        ("last>=?", chosen.offset_from),
        ("first<=?", chosen.offset_to),
    )


def where(*clauses: tuple[str, object]) -> tuple[str, list[object]]:
    given = [(clause, value) for clause, value in clauses if value is not None]
    return " and ".join(clause for clause, _ in given), [value for _, value in given]
