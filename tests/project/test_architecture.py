"""Rules of modules, pages and words: what each begins with, where links lead, and what must not occur."""

import ast
import re
import subprocess
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

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


FILES = sorted(path for folder in ("cli", "demo", "jars") for path in (ROOT / "kctl" / folder).rglob("*.py"))
_AROUND = {"sys.stdout.buffer", "sys.stderr.buffer", "sys.__stdout__", "sys.__stderr__"}  # not guarded


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


EXEMPT = {"CHANGELOG.md", "CONTRIBUTING.md", "LICENSE"}  # two pages that may use old words, and a text of others
VENDORED = "kctl/http/page/vendor/"  # texts of others


@dataclass(frozen=True)
class Gone:
    word: str  # `*` stands for any letters of an identifier
    folders: tuple[str, ...] = ()  # all if empty

    @property
    def pattern(self) -> re.Pattern[bytes]:
        text = re.escape(self.word).replace(r"\*", r"\w*")
        return re.compile(rf"(?<!\w){text}(?![\w-])".encode())

    def covers(self, name: str) -> bool:
        return not self.folders or name.startswith(self.folders)

    def is_in(self, text: bytes) -> bool:
        """Looks for the letters first, because the pattern takes a quarter of a second for all texts."""
        return all(letters in text for letters in self.word.encode().split(b"*")) and bool(self.pattern.search(text))


def gone(contributing: str) -> list[Gone]:
    table = contributing.split("| gone | use | from |")[1].split("\n\n")[0]
    rows = [row.split("|") for row in table.splitlines()[2:]]
    return [
        Gone(word, tuple(re.findall(r"`([^`]+)`", row[3]))) for row in rows for word in re.findall(r"`([^`]+)`", row[1])
    ]


def texts() -> Iterator[tuple[str, bytes]]:
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.check_output(command, cwd=ROOT, text=True).split("\0"):
        if name not in EXEMPT and not name.startswith(VENDORED) and (ROOT / name).is_file():
            yield name, (ROOT / name).read_bytes()


@pytest.mark.shows("words that CONTRIBUTING.md lists as gone appear nowhere")
def test_a_word_that_is_gone_is_nowhere() -> None:
    words = gone((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))

    assert len(words) > 5
    found = [(word.word, name) for name, text in texts() for word in words if word.covers(name) and word.is_in(text)]
    assert found == [], "see Words in CONTRIBUTING.md"
