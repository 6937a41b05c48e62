"""docs/proof.md, made of the tests: `python -m tests.proof > docs/proof.md`. No test is run or imported.

A promise is the text of `@pytest.mark.shows("…")` at the test that shows it; of each file of acceptance tests, and of
the suite that every storage passes, it is the first paragraph of the docstring.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from textwrap import wrap

ROOT = Path(__file__).parents[1]
WHOLE = ("tests/acceptance", "tests/conformance")
"""Folders whose files each show what their docstring promises."""
MARK = "pytest.mark.shows"
LONG = "pytest.mark.long"
HEAD = """\
# What is promised, and what shows it

Generated from the tests by `python -m tests.proof > docs/proof.md`: a promise stands at the test that shows it, as
`@pytest.mark.shows("…")`, or begins the docstring of its file; `git grep -i` finds it by its words. *long* is what
`make test-long` alone runs. What is measured is in [benchmarks/README.md](../benchmarks/README.md).
"""


def page() -> str:
    """The whole page: a section for each folder, an entry for each file that shows something."""
    sections = [HEAD]
    for folder, files in groupby(_files(), key=_section):
        entries = [entry for file in files if (entry := _entry(file))]
        if entries:
            sections.append("\n".join([f"## {folder}\n", *entries, ""]))
    return "\n".join(sections)


def promises(file: Path) -> Iterator[str]:
    """What a file of tests shows, most of it first."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    tests = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    ]
    if tests and any(file.is_relative_to(ROOT / folder) for folder in WHOLE):
        first, _, _ = (ast.get_docstring(tree) or "").partition("\n\n")
        yield " ".join(first.split()).rstrip(".") + (" *(long)*" if _is_long(tree) else "")
    for test in tests:
        for mark in test.decorator_list:
            if isinstance(mark, ast.Call) and ast.unparse(mark.func) == MARK:
                (text,) = map(ast.literal_eval, mark.args)
                rare = _is_long(tree) or LONG in map(ast.unparse, test.decorator_list)
                yield text + (" *(long)*" if rare else "")


def _files() -> list[Path]:
    """Acceptance tests first, then what is nearest to them."""
    order = ["tests/acceptance", "tests/integration", *WHOLE[1:], "tests/project"]
    files = [*ROOT.glob("tests/**/test_*.py"), *ROOT.glob(f"{WHOLE[1]}/*.py")]
    rank = {ROOT / folder: place for place, folder in enumerate(order)}
    return sorted(files, key=lambda path: (rank.get(path.parent, len(rank)), path.parent, path.name))


def _section(file: Path) -> str:
    """The folder of a file, but of unit tests those of a package together."""
    parts = file.parent.relative_to(ROOT).parts
    return "/".join(parts[:3] if parts[:2] == ("tests", "unit") else parts)


def _entry(file: Path) -> str:
    shown = " ".join(f"{promise[0].upper()}{promise[1:]}." for promise in promises(file))
    text = f"- {shown}" if shown else ""
    return "\n".join(wrap(text, 120, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False))


def _is_long(tree: ast.Module) -> bool:
    """Whether only `make test-long` runs all of the file."""
    marks = [ast.unparse(node) for node in tree.body if isinstance(node, ast.Assign)]
    return any(each.startswith("pytestmark ") and LONG in each for each in marks)


if __name__ == "__main__":
    print(page(), end="")
