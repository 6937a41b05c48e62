"""Every PromQL expression: of dashboards, as Grafana would send it, and of rules."""

import json
import re
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


def of_dashboards(rate_interval: str) -> dict[str, str]:
    """`group: Lag A` to PromQL, including annotations; each variable selects all."""
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
    """Alerts that page someone."""
    found = (rule for group in rules()["groups"] for rule in group["rules"] if "alert" in rule)
    return {rule["alert"] for rule in found if rule["labels"]["severity"] == "critical"}
