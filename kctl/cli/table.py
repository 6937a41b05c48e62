"""Plain-text tables with aligned columns."""

# Not made with rich, because importing rich takes longer than a whole `kctl rpc`.

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from kctl.terminal import shown

UNKNOWN = "-"
_NAMES = {str, type(None)}
_NUMBERS = {int, type(None)}
"""Excludes float and bool, because 1, 1.0 and True are equal but printed differently."""


class Column(NamedTuple):
    heading: str
    is_number: bool = False


def columns(headings: str) -> tuple[Column, ...]:
    """Makes columns from headings separated by blanks. A leading `>` aligns a column to the right."""
    return tuple(Column(each.removeprefix(">"), each.startswith(">")) for each in headings.split())


def render(columns: Sequence[Column], rows: Iterable[Sequence[object]]) -> list[str]:
    """Returns the lines of a table, without trailing blanks."""
    lines = list(rows)
    return render_columns(columns, [[row[i] for row in lines] for i in range(len(columns))])


def render_columns(columns: Sequence[Column], values: Iterable[Sequence[Any]]) -> list[str]:
    set_columns = [_set_column(column, each) for column, each in zip(columns, values, strict=True)]
    layout = "  ".join(each for each, _ in set_columns)
    return [(layout % cells).rstrip() for cells in zip(*(each for _, each in set_columns), strict=True)]


def cell(value: object) -> str:
    """Formats a value: None, False and empty as `-`, True as `yes`, lists with commas. Escapes control characters."""
    if type(value) is int:
        return str(value)
    if value is None or value is False or value == "" or value == []:
        return UNKNOWN
    if value is True:
        return "yes"
    if isinstance(value, list | tuple):
        return ",".join(cell(each) for each in value)
    return clean(str(value))


def _set_column(column: Column, values: Sequence[Any]) -> tuple[str, Sequence[object]]:
    types = set(map(type, values))
    if types <= _NUMBERS:
        return _set_numbers(column, values, has_unknown=type(None) in types)
    if types <= _NAMES:
        return "%s", _set_names(column, values)
    return "%s", _set([column.heading, *map(cell, values)], column)


def _set_numbers(column: Column, values: Sequence[Any], *, has_unknown: bool) -> tuple[str, Sequence[object]]:
    # Numbers are formatted when their line is printed. The least or the greatest is the widest.
    known = [value for value in values if value is not None] if has_unknown else values
    extremes = [str(extreme(known)) for extreme in (min, max) if known]
    widest = max(map(len, (column.heading, UNKNOWN, *extremes)))
    cells = [UNKNOWN if value is None else value for value in values] if has_unknown else values
    return f"%{'' if column.is_number else '-'}{widest}s", [column.heading, *cells]


def _set_names(column: Column, values: Sequence[str | None]) -> list[str]:
    # Each distinct name is formatted once, because thousands of cells usually have few names.
    distinct = list(dict.fromkeys(values))
    heading, *texts = _set([column.heading, *map(cell, distinct)], column)
    of = dict(zip(distinct, texts, strict=True))
    return [heading, *[of[value] for value in values]]


def clean(text: str) -> str:
    """Escapes control characters, so that the text cannot control the terminal or start a new line."""
    return shown(text, kept="")


def width(text: str) -> int:
    """Returns the width of a text in terminal columns: two per East Asian wide character, zero per combining mark."""
    return len(text) if text.isascii() else sum(map(_character_width, text))


def clip(text: str, columns: int) -> str:
    if width(text) <= columns:
        return text
    kept, used = [], 1
    for character in text:
        used += _character_width(character)
        if used > columns:
            break
        kept.append(character)
    return "".join(kept) + "…"


def duration(seconds: float | None) -> str | None:
    """Formats a duration: `45s`, `12m30s`, `3h05m`, `2d04h`."""
    if seconds is None:
        return None
    whole = int(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02}m"
    return f"{whole // 86400}d{whole % 86400 // 3600:02}h"


def ranges(numbers: Iterable[int], shortest: int = 3) -> str:
    """Sorts and formats numbers: `0-3,7`. Writes `shortest` or more consecutive numbers as a range."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(f"{r[0]}-{r[-1]}" if len(r) >= shortest else ",".join(map(str, r)) for r in runs)


def _character_width(character: str) -> int:
    import unicodedata  # a megabyte of tables that plain ASCII never needs

    if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _set(texts: list[str], column: Column) -> list[str]:
    # Pads a whole column at once, because thousands of rows are faster to measure together.
    if all(map(str.isascii, texts)):
        widest = max(map(len, texts))
        return [text.rjust(widest) if column.is_number else text.ljust(widest) for text in texts]
    widths = [width(text) for text in texts]
    widest = max(widths)
    blanks = [" " * (widest - own) for own in widths]
    return [blank + text if column.is_number else text + blank for text, blank in zip(texts, blanks, strict=True)]
