"""What there is, is documented: settings, commands, options, results, error codes, exit codes."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import kctl
import kctl_agent
from kctl.cli.app import tree
from kctl.cli.command import Command, CommandGroup
from kctl.cli.help import page as help_of
from kctl.errors import KctlError
from kctl.operations import COMMANDS as OPERATIONS
from kctl_agent.errors import AgentError
from tests import problems_page
from tests.configuration_page import reference
from tests.rpc_page import reference as questions_and_operations

DOCS = Path(__file__).parents[2] / "docs"
DEPLOY = DOCS.parent / "deploy"


def rows_of(page: str) -> dict[str, list[str]]:
    """The rows of all tables of a page by their first cell, code marks removed."""
    rows = {}
    for line in (DOCS / page).read_text(encoding="utf-8").splitlines():
        if line.startswith("|"):
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            rows[cells[0].strip("`")] = cells[1:]
    return rows


def errors_of(root: type[Any]) -> Iterator[type[Any]]:
    yield root
    for kind in root.__subclasses__():
        if kind.__module__.startswith(("kctl.", "kctl_agent.")):
            yield from errors_of(kind)


@pytest.fixture(scope="module", autouse=True)
def everything_imported() -> None:
    """So that every error class is known."""
    for package in (kctl, kctl_agent):
        for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)


@pytest.mark.shows("settings, commands, options, errors, exit codes and metrics are documented")
def test_the_page_of_settings_is_the_one_that_is_generated() -> None:
    page = (DOCS / "configuration.md").read_text(encoding="utf-8")

    assert page == reference(), "python -m tests.configuration_page > docs/configuration.md"


def test_every_name_of_another_exporter_is_in_the_table_of_names() -> None:
    page = (DOCS / "exporter.md").read_text(encoding="utf-8")
    table = page[
        page.index("## Dashboards that were made for other exporters") : page.index("These have no counterpart:")
    ]

    named = {name for name in re.findall(r"`([a-z_]+)`", table) if name.startswith(("kafka_", "kminion_"))}

    rules = [
        rule["record"]
        for name in ("kafka_exporter", "kminion")
        for group in yaml.safe_load((DEPLOY / "prometheus" / f"{name}.rules.yml").read_text())["groups"]
        for rule in group["rules"]
    ]
    assert named == {*rules}


def test_every_error_of_the_control_plane_is_documented_as_it_is() -> None:
    rows = rows_of("errors.md")

    for kind in errors_of(KctlError):
        reported = rows[kind.code][:3]
        assert reported == [str(kind.exit_code), str(kind.http_status), "yes" if kind.retriable else "no"], kind.code


def test_every_error_of_the_agent_is_documented_as_it_is() -> None:
    rows = rows_of("errors.md")

    for kind in errors_of(AgentError):
        assert rows[kind.code][0] == ("yes" if kind.retriable else "no"), kind.code


def test_no_two_errors_share_a_code() -> None:
    kinds = [*errors_of(KctlError), *errors_of(AgentError)]

    assert len({kind.code for kind in kinds}) == len(kinds)


def test_no_two_causes_of_a_failed_start_share_an_exit_code() -> None:
    causes = [kind for kind in errors_of(KctlError) if kind.exit_code >= 10]

    assert len({kind.exit_code for kind in causes}) == len(causes)


def test_every_exit_code_is_in_its_table_and_on_the_help_page() -> None:
    table = " ".join(rows_of("errors.md"))
    help_page = help_of(tree(), "kctl")

    for code in {kind.exit_code for kind in errors_of(KctlError)}:
        assert re.search(rf"\b{code}\b", table) or "10 … 16" in table
        assert re.search(rf"\b{code}\s+[a-z]", help_page), code


def cli_commands(group: CommandGroup, path: str = "kctl") -> Iterator[tuple[str, Command]]:
    for each in group.commands:
        if isinstance(each, CommandGroup):
            yield from cli_commands(each, f"{path} {each.name}")
        else:
            yield f"{path} {each.name}", each


def test_every_command_of_the_cli_is_documented_with_its_options() -> None:
    rows = rows_of("commands.md")

    for path, command in cli_commands(tree()):
        if path.removeprefix("kctl ") in OPERATIONS:  # docs/rpc.md is made of them
            continue
        options = [max(each.names, key=len) for each in command.options if not each.is_argument]
        shared = [row[1] for name, row in rows.items() if name.endswith("…") and path.startswith(name[:-1])]
        missing = [option for option in options if option not in " ".join([rows[path][1], *shared, "--help"])]
        assert not missing, path


def test_the_options_before_any_command_are_documented() -> None:
    page = (DOCS / "commands.md").read_text(encoding="utf-8")

    for option in tree().options:
        assert max(option.names, key=len) in page


def test_the_page_of_questions_and_operations_is_the_one_that_is_generated() -> None:
    page = (DOCS / "rpc.md").read_text(encoding="utf-8")

    assert page == questions_and_operations(), "python -m tests.rpc_page > docs/rpc.md"


@pytest.mark.shows("docs/problems.md shows what every view shows of more than thirty problems")
def test_the_page_of_problems_is_the_one_that_is_generated() -> None:
    page = (DOCS / "problems.md").read_text(encoding="utf-8")

    assert page == problems_page.page(), "python -m tests.problems_page > docs/problems.md"
