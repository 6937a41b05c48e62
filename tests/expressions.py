"""The PromQL expressions of dashboards (as Grafana would send them) and rules, with metrics, matchers and labels.
Prometheus checks the syntax."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from kctl.exporter import METRICS

_ROOT = Path(__file__).parents[1]
RULES_FILE = _ROOT / "deploy" / "prometheus" / "kctl.rules.yml"
TABLE = {
    "up": {"job", "instance"},
    **{metric.name: set(metric.labels) for metric in METRICS},
    **{
        f"{metric.name}{part}": {*metric.labels, "le"}
        for metric in METRICS
        if metric.kind == "histogram"
        for part in ("_bucket", "_sum", "_count")
    },
}

_SELECTOR = re.compile(r"\b((?:kctl_|cluster_group:)[\w:]+|up)\b(?:\{([^}]*)\})?(\[[^\]]*\])?")
_MATCHER = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"')
_GROUPING = re.compile(r"\b(?:by|on|without|ignoring|group_left|group_right)\s*\(([^)]*)\)")
_AGGREGATION = re.compile(r"\b(sum|max|min|count|avg)\b(?!_)\s*(?:by\s*\(([^)]*)\))?")


def of_dashboards(rate_interval: str) -> dict[str, str]:
    """Maps `group: Lag A` to PromQL, including annotations. Each variable selects all."""
    found = {}
    for file in sorted((_ROOT / "dashboards").glob("*.json")):
        board = json.loads(file.read_text(encoding="utf-8"))
        for panel in board["panels"]:
            for target in panel.get("targets", ()):
                found[f"{file.stem}: {panel['title']} {target['refId']}"] = target["expr"]
        for annotation in board["annotations"]["list"]:
            found[f"{file.stem}: annotation {annotation['name']}"] = annotation["expr"]
    return {
        name: re.sub(r"\$(cluster|group|topic|worker)", ".*", expression.replace("$__rate_interval", rate_interval))
        for name, expression in found.items()
    }


def rules() -> Any:
    return yaml.safe_load(RULES_FILE.read_text(encoding="utf-8"))


def alerts() -> dict[str, str]:
    return {rule["alert"]: rule["expr"] for group in rules()["groups"] for rule in group["rules"] if "alert" in rule}


def paging() -> set[str]:
    found = (rule for group in rules()["groups"] for rule in group["rules"] if "alert" in rule)
    return {rule["alert"] for rule in found if rule["labels"]["severity"] == "critical"}


@dataclass(frozen=True)
class Selector:
    metric: str
    matchers: dict[str, str]  # label to operator and value, such as `=~"$cluster"`
    window: str  # such as `[5m]`, or empty


def selectors(expression: str) -> list[Selector]:
    return [
        Selector(
            match[1],
            {label: f'{how}"{value}"' for label, how, value in _MATCHER.findall(match[2] or "")},
            match[3] or "",
        )
        for match in _SELECTOR.finditer(_GROUPING.sub("by ()", expression))
    ]


def labels(expression: str) -> set[str]:
    grouped = {name.strip() for names in _GROUPING.findall(expression) for name in names.split(",")}
    return (grouped | {label for one in selectors(expression) for label in one.matchers}) - {""}


def aggregations(expression: str) -> list[list[str]]:
    """Returns the labels that each aggregation groups by, or an empty list for an aggregation without labels."""
    found = _AGGREGATION.findall(re.sub(r'"[^"]*"', '""', expression))
    return [[name.strip() for name in names.split(",")] if names else [] for _, names in found]
