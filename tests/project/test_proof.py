"""docs/proof.md names what shows each promise: what it names exists, and what exists at the top tier is named."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "proof.md").read_text(encoding="utf-8")
REFERENCE = re.compile(r"`((?:tests|benchmarks|agent/kctl_agent/storage/conformance)/[\w./]+\.py)::([^`]+)`")
NOT_YET = "not shown yet"
LONG = "pytest.mark.long"


def promises() -> list[tuple[str, str, str]]:
    """The rows of all tables: promise, what shows it, number."""
    rows = []
    for line in PAGE.splitlines():
        if line.startswith("| ") and not line.startswith("| promise "):
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            assert len(cells) == 3, line
            rows.append((cells[0], cells[1], cells[2]))
    return rows


def names_in(path: Path) -> set[str]:
    """The tests of a file, methods in the storages' suite; of a benchmark, its texts: one names its JSON line."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    if path.is_relative_to(ROOT / "benchmarks"):
        return {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    if path.is_relative_to(ROOT / "tests"):
        return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("path", sorted({path for path, _ in REFERENCE.findall(PAGE)}))
def test_what_is_named_as_a_proof_exists(path: str) -> None:
    named = {name for file, name in REFERENCE.findall(PAGE) if file == path}

    assert named - names_in(ROOT / path) == set()


def test_every_promise_names_what_shows_it_or_that_nothing_does_yet() -> None:
    for promise, shown_by, _ in promises():
        assert bool(REFERENCE.search(shown_by)) != (NOT_YET in shown_by), promise


def test_a_figure_stands_only_beside_what_measures_it() -> None:
    for promise, shown_by, number in promises():
        assert number, promise
        assert number == "-" or REFERENCE.search(shown_by), promise


@pytest.mark.parametrize("path", sorted(ROOT.glob("tests/acceptance/test_*.py")), ids=lambda path: path.stem)
def test_every_acceptance_test_shows_a_promise(path: Path) -> None:
    named = {name for file, name in REFERENCE.findall(PAGE) if file == str(path.relative_to(ROOT))}

    assert {name for name in names_in(path) if name.startswith("test_")} == named


def test_what_only_make_test_long_runs_is_said_to_be_so() -> None:
    for promise, shown_by, _ in promises():
        rare = [name for file, name in REFERENCE.findall(shown_by) if name in long_tests_in(ROOT / file)]
        assert not rare or "make test-long" in promise + shown_by, (promise, rare)


def long_tests_in(path: Path) -> set[str]:
    """Those that `make test` leaves out; of a test with parameters none, as it runs some of them."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    of_all = any(isinstance(node, ast.Assign) and f"{LONG}," in ast.unparse(node) for node in tree.body)
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    return {each.name for each in functions if of_all or LONG in map(ast.unparse, each.decorator_list)}
