"""Every module begins with what it is, every link leads somewhere, no page names a place of one machine."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from tests.house import circles

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *ROOT.glob("deploy/*.md"),
        *ROOT.glob("docs/*/*.md"),
        *ROOT.glob("docs/*.md"),
        *ROOT.glob("agent/*.md"),
        *ROOT.glob("benchmarks/*.md"),
    ]
)
READ = [page for page in PAGES if page.parent.name not in ("benchmarks", "deploy", "agent")]


def found(pattern: str, page: Path, flags: int = 0) -> list[Any]:
    return re.findall(pattern, page.read_text(encoding="utf-8"), flags)


def modules() -> Iterator[Path]:
    for package in ("kctl", "agent/kctl_agent"):
        yield from (path.relative_to(ROOT) for path in (ROOT / package).rglob("*.py"))


@cache
def tree(module: Path) -> ast.Module:
    return ast.parse((ROOT / module).read_text(encoding="utf-8"))


def docstring(module: Path) -> str:
    return ast.get_docstring(tree(module)) or ""


def test_every_module_begins_with_what_it_is() -> None:
    assert [str(module) for module in modules() if not docstring(module)] == []


def test_no_test_imports_from_another_test() -> None:
    """Shared code belongs into `conftest.py` or into a module named after what it contains."""
    imports = re.compile(r"^ *(?:from [\w.]*\btest_\w+ import|(?:from [\w.]+ )?import .*\btest_\w+)", re.MULTILINE)
    texts = {path: path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py")}

    assert [f"{path.relative_to(ROOT)}: {found}" for path in texts for found in imports.findall(texts[path])] == []


def anchors(page: Path) -> set[str]:
    """The names that GitHub gives to the headings of a page."""
    headings = found(r"^#+ (.+)$", page, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_link_leads_somewhere_and_finds_its_heading() -> None:
    links = [(page, link) for page in PAGES for link in found(r"\]\(([^)#\s]+)", page) if "://" not in link]
    to_headings = [(page, *link) for page in PAGES for link in found(r"\]\(([^)#\s:]*)#([^)\s]+)", page)]

    assert [(page, link) for page, link in links if not (page.parent / link).exists()] == []
    assert [
        each for each in to_headings if each[2] not in anchors(each[0].parent / each[1] if each[1] else each[0])
    ] == []


def test_every_file_that_a_page_names_is_there_and_none_is_of_one_machine() -> None:
    pattern = r"`((?:agent|kctl|tests|benchmarks|scripts|worker|storage)/[\w./-]+\.(?:py|lua|sql|sh))"
    pages = [page for page in PAGES if page.name not in ("CHANGELOG.md", "CONTRIBUTING.md")]  # these name what was
    named = {(page, name) for page in pages for name in found(pattern, page)}
    folders = (ROOT, ROOT / "kctl", ROOT / "agent" / "kctl_agent")

    assert [each for each in sorted(named) if not any((folder / each[1]).exists() for folder in folders)] == []
    assert [(page, path) for page in PAGES for path in found(r"/(?:home|root|work|Users)/\w+", page)] == []


def test_lines_have_120_columns_and_cells_of_tables_200() -> None:
    for page in READ:
        text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        lines = text.splitlines()
        cells = [cell for line in lines if line.startswith("|") for cell in re.split(r"(?<!\\)\|", line)]

        assert [line for line in lines if len(line) > 120 and not line.startswith("|")] == [], page
        assert page.name == "SECURITY.md" or [cell for cell in cells if len(cell.strip()) > 200] == [], page


def test_a_module_that_calls_itself_pure_is_checked_to_be_so() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    (pure,) = [each["source_modules"] for each in settings["contracts"] if "pure" in each["name"]]
    called = [module for module in modules() if re.search(r"\bPure[.:]", docstring(module))]
    names = [
        ".".join(module.with_suffix("").parts).removeprefix("agent.").removesuffix(".__init__") for module in called
    ]

    assert names
    assert [name for name in names if not any(f"{name}.".startswith(f"{each}.") for each in pure)] == []


def test_no_modules_import_each_other_not_even_for_types_alone() -> None:
    assert circles() == []


def test_a_docstring_begins_with_what_the_thing_is_not_with_its_errors() -> None:
    nodes = ((module, node) for module in modules() for node in ast.walk(tree(module)))
    documented = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    found = [
        f"{module}: {node.name}"
        for module, node in nodes
        if isinstance(node, documented) and (ast.get_docstring(node) or "").startswith("Raises")
    ]

    assert found == []
