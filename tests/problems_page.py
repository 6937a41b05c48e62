"""docs/problems.md from the tests' tables: `python -m tests.problems_page > docs/problems.md`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from tests.acceptance.changes import CHANGES
from tests.acceptance.host_bench import HOST_PROBLEMS, HostsBench
from tests.acceptance.outages import PROBLEMS

HEAD = """\
# Problems, and what is shown of them

<!-- `python -m tests.problems_page` writes this from tests/acceptance/outages.py, host_bench.py and changes.py. -->

The tests make each of these problems on real parts: brokers, Spark, Redis, Prometheus, a browser. Within 10 s of its
beginning, `kctl status`, `kctl top`, `kctl rpc`, the page, the API and `/readyz` show the same level and the same
reason, `KctlFleetFailing` or `KctlFleetDegraded` is pending and names the part in trouble, and an event of the kind
`verdict` has both. For at least 5 s after that, no view shows `ok`, unless the level is `ok`. Within 10 s of its end,
everything is `ok` again. If a problem begins or ends at another time than its cause, its row shows it. In a reason `N`
is a number.

"""
TABLE = """\
| problem | level | reason | in `make test` |
|---|---|---|---|
"""
HOSTS = """
## On several hosts

The fleet's verdict is the same on each of three hosts; `/readyz` is 503 only on the host in the last column.

| problem | level | reason | not ready |
|---|---|---|---|
"""
OTHERS = """
## Around the fleet

| problem | what is shown |
|---|---|
| The master is frozen. | page: `no data`; commands end with exit code 1; `KctlMasterDown` is pending |
| The master is killed. | page: `no data`; commands end with exit code 5; `KctlMasterDown` is pending |
| The token of an open page is no longer valid. | page: `no data`; commands need no token and show the verdict |
"""
ORDINARY = """
## Ordinary changes

From before each of these changes until all is `ok` after it, no view shows `failing`, and no alert of severity
`critical` is pending. The exception is `KctlMasterDown` while a host is upgraded: it fires only after two minutes.

"""


def page() -> str:
    rows = [_row(each.outage, each.level, each.whats, each.why, "yes" if each.is_quick else "") for each in PROBLEMS]
    hosts = [_row(each.outage, each.level, each.whats, "", ", ".join(each.unready)) for each in HOST_PROBLEMS]
    changes: tuple[Callable[..., Any], ...] = (*CHANGES, HostsBench.upgrade)
    ordinary = [f"- {_sentence(each)}" for each in changes]
    return "".join((HEAD, TABLE, *rows, HOSTS, *hosts, OTHERS, ORDINARY, "\n".join(ordinary), "\n"))


def _row(outage: Callable[..., Any], level: str, whats: tuple[str, ...], why: str, more: str) -> str:
    reasons = "; or ".join(f"`{what}`" for what in whats) + (f" … `{why}`" if why else "")
    what = " ".join((inspect.getdoc(outage) or "").split())
    return f"| {what} | `{level}` | {reasons} | {more} |\n"


def _sentence(what: Callable[..., Any]) -> str:
    return (inspect.getdoc(what) or "").split("\n\n")[0]


if __name__ == "__main__":
    print(page(), end="")
