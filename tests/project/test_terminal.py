"""Nothing of the command line writes around the one function that keeps text from steering a terminal."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = sorted(path for folder in ("cli", "demo", "jars") for path in (ROOT / "kctl" / folder).rglob("*.py"))
_AROUND = {"sys.stdout.buffer", "sys.stderr.buffer", "sys.__stdout__", "sys.__stderr__"}
"""What is not guarded."""


def around(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and reason of everything that could write to a terminal without the guard."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and ast.unparse(node) in _AROUND:
            yield node.lineno, ast.unparse(node)
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        if called in {"os.write", "os.fdopen"} and ast.unparse(node.args[0]) in {"1", "2", "sys.stdout.fileno()"}:
            yield node.lineno, called
        if called == "Console" and not any(
            word.arg == "file" and ast.unparse(word.value).startswith("plain(") for word in node.keywords
        ):
            yield node.lineno, "rich writes its own escapes: Console(file=plain(…)), and shown() or clean() of the text"
        if any(isinstance(each, ast.Constant) and each.value == "/dev/tty" for each in node.args):
            yield node.lineno, "/dev/tty"


def test_nothing_is_printed_around_the_guard_of_the_terminal_or_given_to_rich_as_markup() -> None:
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in FILES}
    rows = [
        (path, node)
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_row"
    ]

    assert [(path, *found) for path, tree in trees.items() for found in around(tree)] == []
    assert [(path, node.lineno) for path, node in rows if "Text" not in ast.unparse(node)] == [], "a str is markup"


@pytest.mark.parametrize(
    "code",
    [
        "sys.stdout.buffer.write(b'x')",
        "print('x', file=sys.__stderr__)",
        "os.write(1, b'x')",
        "Console().print('x')",
        "open('/dev/tty')",
    ],
)
def test_each_way_around_is_found(code: str) -> None:
    assert list(around(ast.parse(code)))
