"""Pages of docs/ with parts that are generated from code and tests: `make pages` writes them.

A part stands between `<!-- generated -->` and `<!-- end -->`; what is around it is written by hand.
"""

import inspect
import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

from kctl.cli.command import Command, CommandGroup
from kctl.cli.entry import tree
from kctl.cli.help import page
from kctl.exporter import METRICS
from kctl.exporter.metric import CLUSTER, GROUP, PARTITION, Metric
from kctl.operations import COMMANDS as OPERATIONS
from tests import configuration_page, errors_page, proof, rpc_page
from tests.acceptance.host_bench import HOST_PROBLEMS, HostsBench
from tests.acceptance.outages import CHANGES, PROBLEMS
from tests.configuration_page import entry


def _commands() -> list[str]:
    with patch.dict(os.environ, COLUMNS="100"):
        return ["".join(_sections(tree(), "kctl"))]


def _sections(node: Command | CommandGroup, path: str) -> Iterator[str]:
    shown = node if isinstance(node, CommandGroup) else node._replace(epilog="")
    yield f"\n## `{path}`\n\n```\n{page(shown, path)}\n```\n"
    if isinstance(node, CommandGroup):
        for each in node.commands:
            if each.name not in OPERATIONS:
                yield from _sections(each, f"{path} {each.name}")


_HEADINGS = {  # by the first labels of their metrics: the first match counts
    PARTITION: "Partitions",
    (*GROUP, "topic"): "Topics",
    (*GROUP, "worker"): "Workers and sinkers",
    GROUP: "Groups and fleets",
    CLUSTER: "Clusters, with all their groups",
}


def _metrics() -> list[str]:
    return ["".join(map(_metrics_of, _HEADINGS))]


def _metrics_of(labels: tuple[str, ...]) -> str:
    rows = "".join(_metric(metric, labels) for metric in METRICS if _home(metric) == labels)
    return f"\n## {_HEADINGS[labels]}\n\nLabels: {', '.join(map('`{}`'.format, labels))}.\n\n{rows}"


def _home(metric: Metric) -> tuple[str, ...]:
    return next(labels for labels in _HEADINGS if metric.labels[: len(labels)] == labels)


def _metric(metric: Metric, labels: tuple[str, ...]) -> str:
    more = ",".join(metric.labels[len(labels) :])
    return entry(f"`{metric.name}{f'{{{more}}}' if more else ''}`: {metric.sentence}") + "\n"


def _problems() -> list[str]:
    """The problems and the ordinary changes of a fleet, from the tests' tables."""
    rows = [_row(each.outage, each.level, each.whats, each.why, "yes" if each.is_quick else "") for each in PROBLEMS]
    hosts = [_row(each.outage, each.level, each.whats, "", ", ".join(each.unready)) for each in HOST_PROBLEMS]
    changes: tuple[Callable[..., Any], ...] = (*CHANGES, HostsBench.upgrade)
    ordinary = [f"- {_sentence(each)}\n" for each in changes]
    return [_table("in `make test`", rows), _table("not ready", hosts), "".join(ordinary)]


def _table(last: str, rows: list[str]) -> str:
    return "".join([f"| problem | level | reason | {last} |\n|---|---|---|---|\n", *rows])


def _row(outage: Callable[..., Any], level: str, whats: tuple[str, ...], why: str, more: str) -> str:
    plurals = [what for what in whats if what.replace(" has ", " have ") not in whats or " has " not in what]
    reasons = "; or ".join(f"`{what}`" for what in plurals) + (f" … `{why}`" if why else "")
    what = " ".join((inspect.getdoc(outage) or "").split())
    return f"| {what} | `{level}` | {reasons} | {more} |\n"


def _sentence(what: Callable[..., Any]) -> str:
    return (inspect.getdoc(what) or "").split("\n\n")[0]


DOCS = Path(__file__).parents[1] / "docs"
PARTS: dict[str, Callable[[], Sequence[str]]] = {
    "command-line.md": _commands,
    "configuration.md": lambda: [configuration_page.reference()],
    "errors.md": errors_page.tables,
    "metrics.md": _metrics,
    "problems.md": _problems,
    "proof.md": lambda: ["\n\n".join(proof.sections())],
    "rpc.md": lambda: [rpc_page.reference()],
}
_PART = re.compile(r"(?<=<!-- generated -->\n).*?(?=<!-- end -->\n)", re.DOTALL)


def current(name: str) -> str:
    parts = list(PARTS[name]())
    text = _PART.sub(lambda _: f"\n{parts.pop(0).strip()}\n\n", (DOCS / name).read_text(encoding="utf-8"))
    assert not parts, f"{name} has too few parts"
    return text


if __name__ == "__main__":
    for name in PARTS:
        (DOCS / name).write_text(current(name), encoding="utf-8")
