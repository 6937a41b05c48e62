"""A dashboard as all of ours are: variables, annotations, links to the others, rows of panels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models.dashboard import (
    AnnotationQuery,
    Dashboard,
    DashboardCursorSync,
    DashboardLinkType,
    DataSourceRef,
    Panel,
    VariableModel,
    VariableOption,
    VariableRefresh,
    VariableSort,
)

__all__ = ["DATA_SOURCE", "FLEET", "TOPIC", "WORKER", "Board", "PanelBuilder", "Variable"]

DATA_SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
"""A variable, so that an imported or provisioned dashboard asks for nothing: it starts with the default Prometheus."""
FLEET = 'cluster=~"$cluster", group=~"$group"'
"""In every selector: several clusters and groups may be on one Prometheus."""
TOPIC = f'{FLEET}, topic=~"$topic"'
WORKER = f'{FLEET}, worker=~"$worker"'

PanelBuilder: TypeAlias = Builder[Panel]
Variable = tuple[str, str]
"""A label and the metric whose values of it are offered."""

_CLUSTER: Variable = ("cluster", "kctl_group_status")
_GROUP: Variable = ("group", 'kctl_group_status{cluster=~"$cluster"}')
"""Those of all groups: fleets, and what `kctl exporter` collects."""
_RESTARTS = (
    f"sum by (cluster, group, worker, reason) (increase(kctl_worker_restarts_total{{{FLEET}}}[$__rate_interval])) > 0"
)
_REBALANCES = f"max by (cluster, group) (changes(kctl_group_generation{{{FLEET}}}[$__rate_interval])) > 0"


class Board:
    """Rows are added from top to bottom, panels of a row from left to right, 24 columns wide."""

    def __init__(self, name: str, title: str, description: str, *variables: Variable) -> None:
        self._panels = 0
        self._board = (
            builders.Dashboard(f"kctl / {title}")
            .uid(f"kctl-{name}")
            .description(description)
            .tags(["kctl"])
            .editable()
            .tooltip(DashboardCursorSync.CROSSHAIR)
            .time("now-1h", "now")
            .refresh("30s")
            .with_variable(builders.DatasourceVariable("datasource").label("data source").type("prometheus"))
            .annotation(_Annotation("Restarts", _RESTARTS, "red", "{{worker}} started again: {{reason}}"))
            .annotation(_Annotation("Rebalances", _REBALANCES, "orange", "{{group}} rebalanced"))
            .link(
                builders.DashboardLink("kctl")
                .type(DashboardLinkType.DASHBOARDS)
                .tags(["kctl"])
                .include_vars(True)
                .keep_time(True)
            )
        )
        for variable in (_CLUSTER, _GROUP, *variables):
            self._board.with_variable(_variable(*variable))

    def row(self, title: str, panels: Sequence[PanelBuilder]) -> Board:
        """Adds a row; returns this board."""
        self._panels += 1
        self._board.with_row(builders.Row(title).id(self._panels))
        for panel in panels:
            self._panels += 1
            self._board.with_panel(_Numbered(panel, self._panels))
        return self

    def build(self) -> Dashboard:
        return self._board.build()


class _Numbered(Builder[Panel]):
    """A panel with its id: links and alerts name a panel by it."""

    def __init__(self, panel: PanelBuilder, number: int) -> None:
        self._panel = panel
        self._number = number

    def build(self) -> Panel:
        panel = self._panel.build()
        panel.id_val = self._number
        return panel


def _variable(label: str, metric: str) -> Builder[VariableModel]:
    return (
        builders.QueryVariable(label)
        .label(label)
        .datasource(DATA_SOURCE)
        .query(f"label_values({metric}, {label})")
        .current(VariableOption(selected=True, text="All", value="$__all"))
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(VariableSort.ALPHABETICAL_ASC)
        .multi(True)
        .include_all(True)
        .all_value(".*")
    )


class _OfPrometheus(AnnotationQuery):
    """With what Grafana's Prometheus data source reads of an annotation and the SDK does not know."""

    title_format = ""

    def to_json(self) -> dict[str, object]:
        return {**super().to_json(), "titleFormat": self.title_format, "tagKeys": "cluster,group"}


class _Annotation(Builder[AnnotationQuery]):
    def __init__(self, name: str, expression: str, color: str, title: str) -> None:
        self._query = _OfPrometheus(name=name, datasource=DATA_SOURCE, icon_color=color, expr=expression)
        self._query.title_format = title

    def build(self) -> AnnotationQuery:
        return self._query
