"""The map is the territory: every module is in the file map, every link leads somewhere, no page names a place."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
MAP = (
    (ROOT / "docs" / "architecture.md")
    .read_text(encoding="utf-8")
    .split("\n## Where things are\n")[1]
    .split("\n## ")[0]
)
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *ROOT.glob("deploy/*.md"),
        *ROOT.glob("docs/runbooks/*.md"),
        *ROOT.glob("docs/*.md"),
        *ROOT.glob("agent/*.md"),
        *ROOT.glob("benchmarks/*.md"),
    ]
)
PAGE = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def modules() -> Iterator[Path]:
    for package in ("kctl", "agent/kctl_agent"):
        yield from (path.relative_to(ROOT) for path in (ROOT / package).rglob("*.py"))


def entries() -> set[str]:
    """The paths in the first cells of the file map; after the first of a cell the package's folder may be left out."""
    found = set()
    for line in MAP.splitlines():
        if line.startswith("| `"):
            first, *others = re.findall(r"`([^`]+)`", line.split("|")[1])
            package = "agent/kctl_agent/" if first.startswith("agent/") else "kctl/"
            found |= {first, *(name if (ROOT / name).exists() else package + name for name in others)}
    return found


def test_every_module_is_in_the_file_map() -> None:
    named = entries()
    missing = [
        str(module)
        for module in modules()
        if module.name != "__init__.py"
        and str(module) not in named
        and not any(f"{folder}/" in named for folder in module.parents)
    ]

    assert missing == []


def test_the_file_map_names_nothing_that_is_gone() -> None:
    assert [name for name in entries() if not (ROOT / name).exists()] == []


@PAGE
def test_every_link_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8"))
    local = [link for link in links if "://" not in link]

    assert [link for link in local if not (page.parent / link).exists()] == []


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


@PAGE
def test_no_page_names_a_path_of_one_machine(page: Path) -> None:
    assert re.findall(r"/(?:home|root|work|Users)/\w+", page.read_text(encoding="utf-8")) == []


def contracts(kind: str) -> list[dict[str, Any]]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    return [contract for contract in settings["contracts"] if contract["type"] == kind]


@pytest.mark.shows("the layers in docs/architecture.md are those that are checked")
def test_the_layers_in_the_page_are_those_that_are_checked() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    _, of_both, _, of_master, _, of_worker, *_ = page.split("```")
    drawn = [re.split(r"\s{2,}", f"{line:<64}", maxsplit=1) for line in of_both.strip().splitlines()]
    _, *rows = drawn
    kctl = [left for left, _ in rows if left]
    agent = [right.strip() for _, right in rows if right.strip()]

    assert {
        "kctl": kctl,
        "kctl.master": of_master.strip().splitlines(),
        "kctl_agent": agent,
        "kctl_agent.worker": of_worker.strip().splitlines(),
    } == {contract["containers"][0]: contract["layers"] for contract in contracts("layers")}


def test_a_module_that_is_called_pure_is_checked_to_be_so() -> None:
    named = re.findall(r"^\| `(\S+)\.py` \| pure: ", MAP, re.MULTILINE)
    (pure,) = [set(each["source_modules"]) for each in contracts("forbidden") if "pure" in each["name"]]
    called = {name.removeprefix("agent/").replace("/", ".") for name in named}

    assert called
    assert {name for name in called if not pure & {name, name.rpartition(".")[0]}} == set()
