"""The problems of docs/problems.md, from the tests' tables."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from tests.acceptance.host_bench import HOST_PROBLEMS, HostsBench
from tests.acceptance.outages import CHANGES, PROBLEMS


def parts() -> list[str]:
    rows = [_row(each.outage, each.level, each.whats, each.why, "yes" if each.is_quick else "") for each in PROBLEMS]
    hosts = [_row(each.outage, each.level, each.whats, "", ", ".join(each.unready)) for each in HOST_PROBLEMS]
    changes: tuple[Callable[..., Any], ...] = (*CHANGES, HostsBench.upgrade)
    ordinary = [f"- {_sentence(each)}\n" for each in changes]
    return [_table("in `make test`", rows), _table("not ready", hosts), "".join(ordinary)]


def _table(last: str, rows: list[str]) -> str:
    return "".join([f"| problem | level | reason | {last} |\n|---|---|---|---|\n", *rows])


def _row(outage: Callable[..., Any], level: str, whats: tuple[str, ...], why: str, more: str) -> str:
    reasons = "; or ".join(f"`{what}`" for what in whats) + (f" … `{why}`" if why else "")
    what = " ".join((inspect.getdoc(outage) or "").split())
    return f"| {what} | `{level}` | {reasons} | {more} |\n"


def _sentence(what: Callable[..., Any]) -> str:
    return (inspect.getdoc(what) or "").split("\n\n")[0]
