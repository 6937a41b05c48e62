"""The promises of docs/proof.md from the tests, without running or importing them.

A promise is the text of `@pytest.mark.shows("…")`. For files of acceptance tests and of the storage conformance suite,
it is the first paragraph of the docstring.
"""

import ast
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from textwrap import wrap

ROOT = Path(__file__).parents[1]
WHOLE = ("tests/acceptance", "tests/conformance")  # folders whose files each show what their docstring promises
UNIT = "tests/unit"
MARK = "pytest.mark.shows"
LONG = "pytest.mark.long"


def sections() -> Iterator[str]:
    for folder, files in groupby(_files(), key=_section):
        by_entry = groupby(files, key=_package if folder == UNIT else lambda file: file.stem)
        entries = [text for name, of_it in by_entry if (text := _entry(of_it, name if folder == UNIT else ""))]
        if entries:
            yield "\n".join([f"## {folder}\n", *entries])


def promises(file: Path) -> Iterator[str]:
    text, is_whole = file.read_text(encoding="utf-8"), any(file.is_relative_to(ROOT / folder) for folder in WHOLE)
    if MARK not in text and not is_whole:
        return
    tree = ast.parse(text)
    tests = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    ]
    if tests and is_whole:
        first, _, _ = (ast.get_docstring(tree) or "").partition("\n\n")
        yield " ".join(first.split()).rstrip(".") + ("*" if _is_long(tree) else "")
    for test in tests:
        for mark in test.decorator_list:
            if isinstance(mark, ast.Call) and ast.unparse(mark.func) == MARK:
                (text,) = map(ast.literal_eval, mark.args)
                rare = _is_long(tree) or LONG in map(ast.unparse, test.decorator_list)
                yield text + ("*" if rare else "")


def _files() -> list[Path]:
    """Acceptance tests come first, then the tests that are nearest to them."""
    order = ["tests/acceptance", "tests/integration", *WHOLE[1:], "tests/project"]
    files = [*ROOT.glob("tests/**/test_*.py"), *ROOT.glob(f"{WHOLE[1]}/*.py")]
    rank = {ROOT / folder: place for place, folder in enumerate(order)}
    return sorted(files, key=lambda path: (rank.get(path.parent, len(rank)), path.parent, path.name))


def _section(file: Path) -> str:
    folder = file.parent.relative_to(ROOT).as_posix()
    return UNIT if f"{folder}/".startswith(f"{UNIT}/") else folder


def _package(file: Path) -> str:
    return file.relative_to(ROOT / UNIT).parts[0].removesuffix(".py")


def _entry(files: Iterable[Path], name: str) -> str:
    shown = " ".join(f"{promise[0].upper()}{promise[1:]}." for file in files for promise in promises(file))
    text = f"- {name and f'{name}: '}{shown}" if shown else ""
    return "\n".join(wrap(text, 120, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False))


def _is_long(tree: ast.Module) -> bool:
    marks = [ast.unparse(node) for node in tree.body if isinstance(node, ast.Assign)]
    return any(each.startswith("pytestmark ") and LONG in each for each in marks)
