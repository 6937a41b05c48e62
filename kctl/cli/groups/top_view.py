"""The view of `kctl top --groups`, from what was answered and which keys were pressed. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kctl.cli.groups.api_client import unanswered
from kctl.cli.groups.groups import Sort, growth
from kctl.cli.screen import BACKSPACE, ENTER, ESCAPE
from kctl.cli.table import UNKNOWN, Column, clean, clip, render
from kctl.cli.times import duration

__all__ = ["GroupsTopView", "Trends", "View", "summary", "table"]

_TREND_POLLS = 10
_BARS = "▁▂▃▄▅▆▇█"
_LEAST_NAME = 16
_BESIDE_NAME = 59
"""Columns of the screen that lag, time lag, growth, status and trend take."""
_CLUSTER_COLUMNS = 12
_WIDE_COLUMNS = 110
"""Columns of a screen from which on there is room for a reason of which something can be read."""
_REASON_COLUMNS = 40
_TROUBLE = ("losing", "stopped", "stalled", "rewind", "warn", "unknown")
"""The statuses that are counted in the summary, the worst first."""
_KEYS = {
    "s": (Sort.STATUS, "status"),
    "l": (Sort.LAG, "lag"),
    "t": (Sort.LAG_SECONDS, "time"),
    "g": (Sort.GROWTH, "growth"),
    "n": (Sort.GROUP, "name"),
}
"""Keys of the sort orders, with the word for each."""


@dataclass(frozen=True, slots=True)
class View:
    """The choice of groups and their order."""

    sort: Sort = Sort.STATUS
    filter: str = ""
    """A glob; or a part of a name."""
    typed: str | None = None
    """A filter while it is typed."""
    is_ended: bool = False

    @property
    def patterns(self) -> list[str]:
        if not self.filter:
            return []
        return [self.filter if set(self.filter) & set("*?[") else f"*{self.filter}*"]

    def pressed(self, key: str) -> View:
        """Returns the view after a key; one that means nothing changes nothing."""
        if self.typed is not None:
            return self._typing(key, self.typed)
        if key == "/":
            return replace(self, typed=self.filter)
        if key == ESCAPE:
            return replace(self, filter="")
        if key == "q":
            return replace(self, is_ended=True)
        return replace(self, sort=_KEYS[key][0]) if key in _KEYS else self

    def _typing(self, key: str, typed: str) -> View:
        if key == ENTER:
            return replace(self, filter=typed.strip(), typed=None)
        if key == ESCAPE:
            return replace(self, typed=None)
        if key in (BACKSPACE, "\b"):
            return replace(self, typed=typed[:-1])
        return replace(self, typed=typed + key) if key.isprintable() else self

    def help(self) -> str:
        """Returns the last line of the screen."""
        if self.typed is not None:
            return f"/{clean(self.typed)}█ · part of a name, or a glob · Enter: show these · Esc: back"
        filtered = f"Esc: all (now: {clean(self.filter)})" if self.filter else "/: filter"
        words = dict(_KEYS.values())
        return f"{' '.join(_KEYS)}: {', '.join(words.values())} (now: {words[self.sort]}) · q: end · {filtered}"


@dataclass(frozen=True, slots=True)
class GroupsTopView:
    """The answer of `/api/v1/groups`, or why there was none."""

    answer: dict[str, Any] = field(default_factory=dict)
    problem: str | None = None

    @property
    def rows(self) -> list[dict[str, Any]]:
        return list(self.answer.get("rows", ()))

    @property
    def missing(self) -> str | None:
        return unanswered(self.answer) if self.answer else None


class Trends:
    """The lags of the last polls of each group that was among them; forgets groups that are not any more."""

    def __init__(self) -> None:
        self._lags: dict[tuple[str, str], deque[int | None]] = {}

    def add(self, rows: Sequence[dict[str, Any]]) -> None:
        old, self._lags = self._lags, {}
        for row in rows:
            key = row["cluster"], row["group"]
            lags = self._lags[key] = old.get(key) or deque(maxlen=_TREND_POLLS)
            lags.append(row["lag"])

    def bars(self, row: dict[str, Any]) -> str:
        """Returns the trend as bars. The highest of them is as high as can be; blank where nothing was known."""
        lags = self._lags.get((row["cluster"], row["group"]), ())
        most = max((lag for lag in lags if lag is not None), default=0) or 1
        return "".join(" " if lag is None else _BARS[lag * (len(_BARS) - 1) // most] for lag in lags)


def summary(glance: GroupsTopView) -> str:
    """Returns one line: `2,345 groups · 1 losing · 3 stalled · lag 1,200`"""
    if glance.problem is not None:
        return clean(glance.problem)
    answer = glance.answer
    trouble = [f"{answer['statuses'][status]:,} {status}" for status in _TROUBLE if status in answer["statuses"]]
    lag = UNKNOWN if answer["lag"] is None else f"{answer['lag']:,}"
    groups = f"{answer['total']:,} group{'' if answer['total'] == 1 else 's'}"
    return " · ".join([groups, *trouble, f"lag {lag}"])


def table(rows: Sequence[dict[str, Any]], trends: Trends, columns: int, has_clusters: bool) -> list[str]:
    """Returns a line for each group, headings first. A long name is cut, and what does not fit is the trend, or the
    reason, which is there on wide screens alone."""
    has_reason = columns >= _WIDE_COLUMNS
    taken = _BESIDE_NAME + (_CLUSTER_COLUMNS + 2) * has_clusters + _REASON_COLUMNS * has_reason
    room = max(columns - taken, _LEAST_NAME)
    headings = [
        *([Column("cluster")] if has_clusters else []),
        Column("group"),
        Column("lag", is_number=True),
        Column("behind", is_number=True),
        Column("growth/s", is_number=True),
        Column("status"),
        Column("trend"),
        *([Column("reason")] if has_reason else []),
    ]
    cells = [
        (
            *([clip(clean(row["cluster"]), _CLUSTER_COLUMNS)] if has_clusters else []),
            clip(clean(row["group"]), room),
            None if row["lag"] is None else f"{row['lag']:,}",
            duration(row["lag_seconds"]),
            growth(row["growth_per_second"]),
            row["status"],
            f"{trends.bars(row):>{_TREND_POLLS}}",
            *([row["reason"]] if has_reason else []),
        )
        for row in rows
    ]
    return render(headings, cells)
