"""The dashboards: the files are the ones that are built, and every panel can be read, on two clusters too."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from dashboards.build import DASHBOARDS, to_json
from tests.expressions import TABLE
from tests.promql import aggregations, labels, selectors

ROOT = Path(__file__).parents[2]
BUILT = {name: json.loads(to_json(build())) for name, build in DASHBOARDS.items()}
PANELS = [(name, panel) for name, board in BUILT.items() for panel in board["panels"] if panel["type"] != "row"]
EACH_BOARD = pytest.mark.parametrize("name", BUILT)
EACH_PANEL = pytest.mark.parametrize(
    ("board", "panel"), PANELS, ids=[f"{name}: {panel['title']}" for name, panel in PANELS]
)
DATA_SOURCE = {"type": "prometheus", "uid": "${datasource}"}


def check(expression: str) -> None:
    """Names exist, several clusters and groups are kept apart, and rates take the interval that fits."""
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
