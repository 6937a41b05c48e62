"""What there is, is documented: settings, commands, options, results, error codes, exit codes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from kctl.cli.entry import tree
from kctl.cli.help import page as help_of
from kctl.errors import KctlError
from kctl_agent.errors import AgentError
from tests import commands_page, errors_page, problems_page
from tests.configuration_page import reference
from tests.errors_page import errors_of
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


def test_the_page_of_errors_is_the_one_that_is_generated() -> None:
    page = (DOCS / "errors.md").read_text(encoding="utf-8")

    assert page == errors_page.reference(), "python -m tests.errors_page > docs/errors.md"


def test_every_error_has_a_sentence_of_its_own() -> None:
    assert [kind for root in (KctlError, AgentError) for kind in errors_of(root) if not kind.__dict__["__doc__"]] == []


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


def test_the_page_of_commands_is_the_one_that_is_generated() -> None:
    page = (DOCS / "command-line.md").read_text(encoding="utf-8")

    assert page == commands_page.reference(), "python -m tests.commands_page > docs/command-line.md"


def test_the_page_of_questions_and_operations_is_the_one_that_is_generated() -> None:
    page = (DOCS / "rpc.md").read_text(encoding="utf-8")

    assert page == questions_and_operations(), "python -m tests.rpc_page > docs/rpc.md"


@pytest.mark.shows("docs/problems.md shows what every view shows of more than thirty problems")
def test_the_page_of_problems_is_the_one_that_is_generated() -> None:
    page = (DOCS / "problems.md").read_text(encoding="utf-8")

    assert page == problems_page.page(), "python -m tests.problems_page > docs/problems.md"
