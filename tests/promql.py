"""What an expression of PromQL asks for: metrics with their matchers, labels of aggregations. For tests of rules and
dashboards; Prometheus itself checks the syntax."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["Selector", "aggregations", "labels", "selectors"]

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
    """`[5m]`, empty without."""


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
    """Every label that it names, in matchers and groupings."""
    grouped = {name.strip() for names in _GROUPING.findall(expression) for name in names.split(",")}
    return (grouped | {label for one in selectors(expression) for label in one.matchers}) - {""}


def aggregations(expression: str) -> list[list[str]]:
    """By which labels each aggregation groups; an empty list where it names none."""
    found = _AGGREGATION.findall(re.sub(r'"[^"]*"', '""', expression))
    return [[name.strip() for name in names.split(",")] if names else [] for _, names in found]
