"""Every module begins with what it is, every link leads somewhere, no page names a place of one machine."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

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
PAGE = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))

READ = [page for page in PAGES if page.parent.name not in ("benchmarks", "deploy", "agent")]


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


@PAGE
def test_every_link_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8"))
    local = [link for link in links if "://" not in link]

    assert [link for link in local if not (page.parent / link).exists()] == []


def anchors(page: Path) -> set[str]:
    """The names that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@PAGE
def test_every_link_to_a_heading_finds_it(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s:]*)#([^)\s]+)", page.read_text(encoding="utf-8"))

    assert [link for link in links if link[1] not in anchors(page.parent / link[0] if link[0] else page)] == []


@PAGE
def test_every_file_that_a_page_names_is_there(page: Path) -> None:
    if page.name in ("CHANGELOG.md", "CONTRIBUTING.md"):  # they name what was
        return
    text = page.read_text(encoding="utf-8")
    named = set(
        re.findall(r"`((?:agent|kctl|tests|benchmarks|scripts|worker|storage)/[\w./-]+\.(?:py|lua|sql|sh))", text)
    )
    named.discard("kctl/config.py")  # as the design had it, beside what it has become
    folders = (ROOT, ROOT / "kctl", ROOT / "agent" / "kctl_agent")

    assert [name for name in sorted(named) if not any((folder / name).exists() for folder in folders)] == []


@pytest.mark.parametrize("page", READ, ids=lambda page: str(page.relative_to(ROOT)))
def test_lines_have_120_columns_and_cells_of_tables_200(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    lines = text.splitlines()
    cells = [cell for line in lines if line.startswith("|") for cell in re.split(r"(?<!\\)\|", line)]

    assert [line for line in lines if len(line) > 120 and not line.startswith("|")] == []
    assert page.name == "SECURITY.md" or [cell for cell in cells if len(cell.strip()) > 200] == []


@PAGE
def test_no_page_names_a_path_of_one_machine(page: Path) -> None:
    assert re.findall(r"/(?:home|root|work|Users)/\w+", page.read_text(encoding="utf-8")) == []


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
