"""Prints rows as a table, JSON or YAML, and reports rows with an error."""

import argparse
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kctl.cli.output import as_text, echo
from kctl.cli.table import Column, render
from kctl.errors import IncompleteAnswer, KctlError

_ERROR = "error"


def show(
    options: argparse.Namespace,
    columns: Sequence[str],
    rows: Sequence[Mapping[str, Any]],
    problems: Iterable[KctlError] = (),
    **more: Any,
) -> None:
    """Prints rows, then calls `complain`. A table shows `columns`, and `error` if any row has an error. In JSON and
    YAML, `more` adds top-level keys."""
    problems = list(problems)
    if options.output == "table":
        echo("\n".join(table(columns, rows)))
    else:
        document = {"rows": [dict(row) for row in rows], **more}
        show_document(options, document | ({"problems": [str(each) for each in problems]} if problems else {}))
    complain(rows, problems)


def table(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> list[str]:
    keys = [*columns, *([_ERROR] if any(row.get(_ERROR) for row in rows) else [])]
    return render([_column(key, rows) for key in keys], [[row[key] for key in keys] for row in rows])


def _column(key: str, rows: Sequence[Mapping[str, Any]]) -> Column:
    types = {type(row[key]) for row in rows}
    return Column(key.replace("_", "-"), is_number=int in types and types <= {int, type(None)})


def show_document(options: argparse.Namespace, document: object) -> None:
    echo(as_text(document, options.output))


def complain(rows: Iterable[Mapping[str, Any]], problems: Iterable[KctlError]) -> None:
    """Reports row errors and problems as IncompleteAnswer. Without row errors, raises a single problem unchanged."""
    failed = [row for row in rows if row.get(_ERROR)]
    problems = list(problems)
    if problems and not failed and len(problems) == 1:
        raise problems[0]
    if not failed and not problems:
        return
    sentences = [str(problem) for problem in problems]
    if failed:
        first = failed[0]
        where = "-".join(str(first[key]) for key in ("topic", "partition") if key in first)
        count = f"{len(failed)} rows have an error, the first is" if len(failed) > 1 else "one row has an error,"
        sentences.append(f"{count} {where}: {first[_ERROR]}")
    raise IncompleteAnswer("; ".join(sentences))
