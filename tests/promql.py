"""Metrics, matchers and grouping labels of a PromQL expression, for tests of rules and dashboards; Prometheus checks
the syntax.
"""

import re
from dataclasses import dataclass

_SELECTOR = re.compile(r"\b((?:kctl_|cluster_group:)[\w:]+|up)\b(?:\{([^}]*)\})?(\[[^\]]*\])?")
_MATCHER = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"')
_GROUPING = re.compile(r"\b(?:by|on|without|ignoring|group_left|group_right)\s*\(([^)]*)\)")
_AGGREGATION = re.compile(r"\b(sum|max|min|count|avg)\b(?!_)\s*(?:by\s*\(([^)]*)\))?")


@dataclass(frozen=True)
class Selector:
    metric: str
    matchers: dict[str, str]
    """Label to operator and value, such as `=~"$cluster"`."""
    window: str
    """Such as `[5m]`, or empty."""


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
    """Every label in matchers and groupings."""
    grouped = {name.strip() for names in _GROUPING.findall(expression) for name in names.split(",")}
    return (grouped | {label for one in selectors(expression) for label in one.matchers}) - {""}


def aggregations(expression: str) -> list[list[str]]:
    """The labels that each aggregation groups by; an empty list if it names none."""
    found = _AGGREGATION.findall(re.sub(r'"[^"]*"', '""', expression))
    return [[name.strip() for name in names.split(",")] if names else [] for _, names in found]
