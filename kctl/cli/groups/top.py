"""`kctl top --groups`: all groups of the clusters at a glance, live."""

from __future__ import annotations

import sys
import time
from threading import Event
from typing import TYPE_CHECKING

from kctl.cli.groups.api_client import GroupsApi
from kctl.cli.groups.groups import Sort
from kctl.cli.groups.top_view import GroupsTopView, Trends, View, summary, table
from kctl.cli.output import echo
from kctl.cli.screen import keys, line
from kctl.errors import KctlError
from kctl.fields import moment
from kctl.terminal import plain

if TYPE_CHECKING:
    from rich.text import Text

__all__ = ["top"]

_ROWS = 500
"""Rows of each request, also those that do not fit on the screen: their trend is there when they come up."""
_FRAME_LINES = 3
"""Lines of the screen for summary, headings, keys."""
_STYLES = {"losing": "red", "stopped": "red", "stalled": "red", "rewind": "yellow", "warn": "yellow", "unknown": "dim"}


def top(api: GroupsApi, cluster: str | None, sort: Sort, every: float) -> None:
    """Runs until `q` or Ctrl-C; without a terminal it prints a line each time.

    Raises:
        NoMaster: without a terminal, nobody answers when it begins. Also what a later try would not cure.
    """
    if sys.stdin.isatty() and sys.stdout.isatty():
        _on_screen(api, cluster, View(sort), every)
        return
    pause, is_first = Event(), True
    while True:
        glance = _poll(api, cluster, View(sort), must_answer=is_first)
        is_first = False
        parts = [part for part in (summary(glance), glance.missing) if part]
        echo("  ".join((moment(time.time()), "; ".join(parts))))
        pause.wait(every)


def _poll(api: GroupsApi, cluster: str | None, view: View, *, must_answer: bool = False) -> GroupsTopView:
    try:
        return GroupsTopView(api.groups(cluster, view.patterns, view.sort.value, _ROWS))
    except KctlError as error:
        if must_answer or not error.retriable:
            raise
        return GroupsTopView(problem=str(error))


def _on_screen(api: GroupsApi, cluster: str | None, view: View, every: float) -> None:
    from rich.console import Console, Group
    from rich.live import Live

    console, trends = Console(file=plain(sys.stdout)), Trends()
    with Live(console=console, screen=True, auto_refresh=False) as live, keys() as key:
        while not view.is_ended:
            glance = _poll(api, cluster, view)
            trends.add(glance.rows)
            deadline, requested = time.monotonic() + every, (view.sort, view.filter)
            while (view.sort, view.filter) == requested and not view.is_ended:
                lines = _screen(glance, trends, view, console.width, console.height)
                live.update(Group(*lines), refresh=True)
                pressed = key(deadline - time.monotonic())
                if pressed is None:
                    break
                view = view.pressed(pressed)


def _screen(glance: GroupsTopView, trends: Trends, view: View, columns: int, rows: int) -> list[Text]:
    missing = [line(glance.missing, columns, "yellow")] if glance.missing else []
    room = max(rows - _FRAME_LINES - len(missing), 3)
    total = glance.answer.get("total", 0)
    shown = glance.rows[: room if total <= room else room - 1]
    headings, *texts = table(shown, trends, columns, len(glance.answer.get("clusters", ())) > 1)
    return [
        line(f"{moment(time.time())}  {summary(glance)}", columns, "bold"),
        *missing,
        line(headings, columns, "bold"),
        *(line(text, columns, _STYLES.get(row["status"], "")) for text, row in zip(texts, shown, strict=True)),
        *([line(f"{total - len(shown):,} more groups", columns)] if total > len(shown) else []),
        line(view.help(), columns, "dim"),
    ]
