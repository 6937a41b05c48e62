"""Aligned columns of plain text. rich would do it too, but importing it costs more than a whole `kctl rpc`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kctl.terminal import shown

__all__ = ["UNKNOWN", "Column", "cell", "clean", "clip", "ranges", "render", "width"]

UNKNOWN = "-"
_GAP = "  "
_NAMES = {str, type(None)}


class Column(NamedTuple):
    """A column's heading; numbers are set to the right."""

    heading: str
    is_number: bool = False


def render(columns: Sequence[Column], rows: Iterable[Sequence[object]]) -> list[str]:
    """The lines of a table, headings first, without trailing blanks. None is printed as `-`."""
    lines = list(rows)
    values = ([row[i] for row in lines] for i in range(len(columns)))
    set_columns = [_set_column(column, each) for column, each in zip(columns, values, strict=True)]
    return [_GAP.join(line).rstrip() for line in zip(*set_columns, strict=True)]


def cell(value: object) -> str:
    """A value as it is printed: unknown as `-`, true as `yes`, lists with commas, no control characters."""
    if type(value) is int:
        return str(value)
    if value is None or value is False or value == "" or value == []:
        return UNKNOWN
    if value is True:
        return "yes"
    if isinstance(value, list | tuple):
        return ",".join(cell(each) for each in value)
    return clean(str(value))


def _set_column(column: Column, values: list[object]) -> list[str]:
    """The lines of a column. Of thousands of rows most have the same few names: each is formatted once."""
    if not set(map(type, values)) <= _NAMES:  # not 1, 1.0 and True, which are equal and printed otherwise
        return _set([column.heading, *_cells(values)], column)
    distinct = list(dict.fromkeys(values))
    heading, *texts = _set([column.heading, *_cells(distinct)], column)
    of = dict(zip(distinct, texts, strict=True))
    return [heading, *[of[value] for value in values]]


def _cells(values: Iterable[object]) -> list[str]:
    """What `cell` makes of each; what most of them are is not called for."""
    return [str(value) if type(value) is int else UNKNOWN if value is None else cell(value) for value in values]


def clean(text: str) -> str:
    """For a place in a line: nothing in it can steer the operator's terminal, or begin another line."""
    return shown(text, kept="")


def width(text: str) -> int:
    """How many columns of a terminal the text takes: East Asian wide letters two, combining marks none."""
    if text.isascii():
        return len(text)
    return sum(_character_width(character) for character in text)


def clip(text: str, columns: int) -> str:
    """The text, shortened to so many columns; a shortened one ends in `…`."""
    if width(text) <= columns:
        return text
    kept, used = [], 1
    for character in text:
        used += _character_width(character)
        if used > columns:
            break
        kept.append(character)
    return "".join(kept) + "…"


def ranges(numbers: Iterable[int], shortest: int = 3) -> str:
    """`0-3,7`: the numbers sorted, runs of at least `shortest` joined."""
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
    """The texts of a column, all as wide as the widest. By columns, because thousands of rows are measured together."""
    if all(map(str.isascii, texts)):
        widest = max(map(len, texts))
        return [text.rjust(widest) if column.is_number else text.ljust(widest) for text in texts]
    widths = [width(text) for text in texts]
    widest = max(widths)
    blanks = [" " * (widest - own) for own in widths]
    return [blank + text if column.is_number else text + blank for text, blank in zip(texts, blanks, strict=True)]
