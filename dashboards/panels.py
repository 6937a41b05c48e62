"""The kinds of panels. Each has a title, a description, a unit, and queries with a legend."""

from collections.abc import Sequence

from grafana_foundation_sdk.builders import common, dashboard, heatmap, prometheus, stat, statetimeline, timeseries
from grafana_foundation_sdk.models.common import (
    AxisPlacement,
    BigValueColorMode,
    BigValueGraphMode,
    BigValueTextMode,
    HeatmapCellLayout,
    LegendDisplayMode,
    LegendPlacement,
    SortOrder,
    StackingMode,
    TooltipDisplayMode,
    VisibilityMode,
)
from grafana_foundation_sdk.models.dashboard import FieldColorModeId, Threshold, ThresholdsMode
from grafana_foundation_sdk.models.heatmap import HeatmapColorMode
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from dashboards.board import DATA_SOURCE

__all__ = ["GROUP_LEGEND", "Query", "heat", "lines", "numbers", "states"]

GROUP_LEGEND = "{{cluster}} {{group}}"
Query = tuple[str, str]
"""PromQL and the legend of its series."""
_HEIGHT = 8


def lines(
    title: str, description: str, unit: str, *queries: Query, width: int = 8, is_stacked: bool = False
) -> timeseries.Panel:
    """Series over time."""
    panel = (
        timeseries.Panel()
        .title(title)
        .description(description)
        .unit(unit)
        .datasource(DATA_SOURCE)
        .height(_HEIGHT)
        .span(width)
        .fill_opacity(30 if is_stacked else 5)
        .show_points(VisibilityMode.NEVER)
        .axis_soft_min(0)
        .legend(
            common.VizLegendOptions()
            .show_legend(True)
            .display_mode(LegendDisplayMode.TABLE)
            .placement(LegendPlacement.BOTTOM)
            .calcs(["lastNotNull", "max"])
        )
        .tooltip(common.VizTooltipOptions().mode(TooltipDisplayMode.MULTI).sort(SortOrder.DESCENDING))
    )
    if is_stacked:
        panel.stacking(common.StackingConfig().mode(StackingMode.NORMAL))
    for target in _targets(queries):
        panel.with_target(target)
    return panel


def numbers(
    title: str, description: str, unit: str, *queries: Query, width: int = 6, warns_above: float | None = None
) -> stat.Panel:
    """The last value of each series, large."""
    steps = [Threshold(value=None, color="green")]
    if warns_above is not None:
        steps.append(Threshold(value=warns_above, color="orange"))
    panel = (
        stat.Panel()
        .title(title)
        .description(description)
        .unit(unit)
        .datasource(DATA_SOURCE)
        .height(5)
        .span(width)
        .text_mode(BigValueTextMode.VALUE_AND_NAME)
        .graph_mode(BigValueGraphMode.AREA)
        .color_mode(BigValueColorMode.VALUE)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .thresholds(dashboard.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps))
        .no_value("unknown")
    )
    for target in _targets(queries):
        panel.with_target(target)
    return panel


def states(title: str, description: str, *queries: Query, width: int = 12) -> statetimeline.Panel:
    """One line for each state that is, or was, true; a gap where it is not."""
    panel = (
        statetimeline.Panel()
        .title(title)
        .description(description)
        .unit("bool_yes_no")
        .datasource(DATA_SOURCE)
        .height(_HEIGHT)
        .span(width)
        .show_value(VisibilityMode.NEVER)
        .color_scheme(dashboard.FieldColor().mode(FieldColorModeId.PALETTE_CLASSIC_BY_NAME))
        .legend(common.VizLegendOptions().show_legend(False).display_mode(LegendDisplayMode.LIST))
    )
    for target in _targets(queries):
        panel.with_target(target)
    return panel


def heat(title: str, description: str, unit: str, query: Query, width: int = 24) -> heatmap.Panel:
    """One row for each series, its color the value."""
    panel = (
        heatmap.Panel()
        .title(title)
        .description(description)
        .unit(unit)
        .datasource(DATA_SOURCE)
        .height(10)
        .span(width)
        .calculate(False)
        .color(
            heatmap.HeatmapColorOptions().mode(HeatmapColorMode.SCHEME).scheme("Oranges").steps(64).fill("dark-orange")
        )
        .rows_frame(heatmap.RowsHeatmapOptions().layout(HeatmapCellLayout.UNKNOWN).value(title))
        .cell_values(heatmap.CellValues().unit(unit))
        .y_axis(heatmap.YAxisConfig().axis_placement(AxisPlacement.LEFT).unit(unit))
        .show_legend()
        .max_data_points(200)
    )
    for target in _targets([query]):
        panel.with_target(target)
    return panel


def _targets(queries: Sequence[Query]) -> list[prometheus.Dataquery]:
    return [
        prometheus.Dataquery()
        .expr(expression)
        .legend_format(legend)
        .datasource(DATA_SOURCE)
        .format(PromQueryFormat.TIME_SERIES)
        .range()
        .ref_id(chr(ord("A") + number))
        for number, (expression, legend) in enumerate(queries)
    ]
