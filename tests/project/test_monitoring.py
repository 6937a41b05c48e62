"""Alert rules name existing metrics, fire as tested, and lead to a page. Panels also work with two clusters."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from dashboards.build import DASHBOARDS, to_json
from kctl.cli.command import Command
from kctl.cli.entry import _walked
from kctl.master.reduction import COMMANDS
from tests.expressions import TABLE, aggregations, labels, selectors
from tests.prometheus import require

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "prometheus"
RULES = [rule for group in yaml.safe_load((FOLDER / "kctl.rules.yml").read_text())["groups"] for rule in group["rules"]]
ALERTS = [rule for rule in RULES if "alert" in rule]
CHECKS = [
    check
    for file in FOLDER.glob("tests/*.test.yml")
    for test in yaml.safe_load(file.read_text())["tests"]
    for check in test["alert_rule_test"]
]
RUNBOOKS = sorted((ROOT / "docs" / "runbooks").glob("*.md"))
EACH_ALERT = pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
EACH_RUNBOOK = pytest.mark.parametrize("page", RUNBOOKS, ids=lambda page: page.stem)

RECORDED = {rule["record"]: {"cluster", "group"} for rule in RULES if "record" in rule}


@pytest.mark.shows("every metric and label of a rule or a panel is exported")
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.get("alert") or rule["record"])
def test_every_metric_and_label_of_a_rule_is_one_that_is_exported(rule: dict[str, Any]) -> None:
    known = TABLE | RECORDED

    used = selectors(rule["expr"])

    assert used
    assert {one.metric for one in used} - known.keys() == set()
    for one in used:
        assert one.matchers.keys() <= known[one.metric], one
    assert labels(rule["expr"]) <= set().union(*(known[one.metric] for one in used))


@pytest.mark.shows("each alert has severity, summary, its value, and a runbook whose commands exist")
@EACH_ALERT
def test_an_alert_is_tested_keeps_groups_apart_and_has_severity_description_and_a_runbook(rule: dict[str, Any]) -> None:
    notes, known = rule["annotations"], TABLE | RECORDED
    has_groups = any("group" in known[one.metric] for one in selectors(rule["expr"]))

    assert {bool(check.get("exp_alerts")) for check in CHECKS if check["alertname"] == rule["alert"]} == {True, False}
    for grouping in aggregations(rule["expr"]):
        assert grouping[:2] == ["cluster", "group"] if has_groups else grouping[0] == "cluster"

    assert rule["labels"]["severity"] in {"warning", "critical"}
    assert notes.keys() == {"summary", "description", "runbook_url"}
    assert "$value" in notes["description"]
    assert notes["runbook_url"].startswith("docs/runbooks/")
    page = (ROOT / notes["runbook_url"]).read_text(encoding="utf-8")
    assert rule["alert"] in page


def promtool(*words: str | Path) -> str:
    [command] = require("promtool")
    done = subprocess.run([command, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.shows("every alert rule fires when it should and only then")
def test_the_rules_fire_when_they_should_and_only_then() -> None:
    promtool("test", "rules", *FOLDER.glob("tests/*.test.yml"))


def test_promtool_finds_nothing_wrong_with_rules_and_configuration() -> None:
    for name in ("kafka_exporter", "kminion", "kctl"):
        found = promtool("check", "rules", "--lint=all", "--lint-fatal", FOLDER / f"{name}.rules.yml")
    promtool("check", "config", "--syntax-only", FOLDER / "prometheus.yml")

    assert f"{len(RULES)} rules found" in found


def test_no_runbook_is_left_over() -> None:
    linked = {Path(rule["annotations"]["runbook_url"]).name for rule in ALERTS}

    assert {page.name for page in RUNBOOKS} == linked


@EACH_RUNBOOK
def test_a_runbook_has_meaning_checks_causes_and_actions(page: Path) -> None:
    parts = re.split(r"^#+ (.+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]

    assert parts[::2] == [page.stem, "Check first", "Causes", "What to do"]
    assert all(len(text.strip()) > 40 for text in parts[1::2])


@EACH_RUNBOOK
def test_every_command_of_a_runbook_is_one_of_kctl(page: Path) -> None:
    code = re.findall(r"^(kctl [^#\n]+)|`(kctl [^`]+)`", page.read_text(encoding="utf-8"), re.MULTILINE)

    assert code
    for line, inline in code:
        command, path, words = _walked(re.split(r"[|>]", line or inline)[0].split()[1:])
        assert isinstance(command, Command), line or inline
        options = {option for each in command.options for option in each.names}
        assert {word for word in words if word.startswith("-")} <= options, (line or inline, options)
        assert path != "kctl rpc" or words[0] in COMMANDS


BUILT = {name: json.loads(to_json(build())) for name, build in DASHBOARDS.items()}
PANELS = [(name, panel) for name, board in BUILT.items() for panel in board["panels"] if panel["type"] != "row"]
EACH_BOARD = pytest.mark.parametrize("name", BUILT)
EACH_PANEL = pytest.mark.parametrize(
    ("board", "panel"), PANELS, ids=[f"{name}: {panel['title']}" for name, panel in PANELS]
)
DATA_SOURCE = {"type": "prometheus", "uid": "${datasource}"}


def check(expression: str) -> None:
    used = selectors(expression)
    assert used
    for one in used:
        assert one.metric in TABLE, one.metric
        assert one.matchers.keys() <= TABLE[one.metric]
        assert one.matchers["cluster"] == '=~"$cluster"'
        assert one.matchers["group"] == '=~"$group"'
        assert one.window in ("", "[$__rate_interval]")
    assert labels(expression) <= set().union(*(TABLE[one.metric] for one in used))
    assert aggregations(expression)
    for grouping in aggregations(expression):
        assert grouping[:2] == ["cluster", "group"]


@pytest.mark.shows("dashboards have units, legends, descriptions, variables, annotations, and no overlap")
def test_each_file_is_the_one_that_is_built() -> None:
    files = {file.stem: file.read_text(encoding="utf-8") for file in (ROOT / "dashboards").glob("*.json")}

    assert files == {name: to_json(build()) for name, build in DASHBOARDS.items()}, "python -m dashboards"


@EACH_BOARD
def test_data_source_cluster_and_group_are_variables_and_every_variable_is_used(name: str) -> None:
    board = BUILT[name]
    variables = {variable["name"]: variable for variable in board["templating"]["list"]}

    assert [*variables][:3] == ["datasource", "cluster", "group"]
    assert variables["datasource"]["query"] == "prometheus"
    queries = [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]
    for variable in [*variables][1:]:
        assert variables[variable]["datasource"] == DATA_SOURCE
        assert variables[variable]["multi"]
        assert variables[variable]["includeAll"]
        assert any(f'{variable}=~"${variable}"' in query for query in queries), variable


@EACH_BOARD
def test_restarts_and_rebalances_are_annotated(name: str) -> None:
    annotations = {each["name"]: each for each in BUILT[name]["annotations"]["list"]}

    assert annotations.keys() >= {"Restarts", "Rebalances"}
    for each in ("Restarts", "Rebalances"):
        assert annotations[each]["datasource"] == DATA_SOURCE
        assert "{{" in annotations[each]["titleFormat"]
        check(annotations[each]["expr"])


@EACH_BOARD
def test_panels_have_ids_of_their_own_and_do_not_overlap(name: str) -> None:
    panels = BUILT[name]["panels"]
    cells: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        covered = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not covered & cells, panel["title"]
        assert at["x"] + at["w"] <= 24
        cells |= covered

    assert len({panel["id"] for panel in panels}) == len(panels)


@EACH_PANEL
def test_a_panel_describes_what_it_shows_and_names_one_of_two_clusters(board: str, panel: dict[str, Any]) -> None:
    assert panel["description"].endswith(".")
    assert panel["fieldConfig"]["defaults"]["unit"]
    assert panel["datasource"] == DATA_SOURCE
    assert panel["targets"]
    for target in panel["targets"]:
        check(target["expr"])
        assert target["datasource"] == DATA_SOURCE
        assert target["legendFormat"].startswith("{{cluster}} {{group}}")
        [grouping, *_] = aggregations(target["expr"])
        shown = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
        assert shown >= set(grouping) - {"le"}, "two series of one legend"
