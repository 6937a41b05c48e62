"""`kctl top`: the fleet at a glance, live."""

from __future__ import annotations

import os
import select
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from threading import Event
from typing import Annotated, Any

import typer

from kctl.cli.ask import ask
from kctl.cli.options import ConfigOption, config_option
from kctl.cli.table import UNKNOWN, cell, clean
from kctl.cli.tables import causes, duration, mebibytes
from kctl.errors import KctlError
from kctl.fleets import Fleet, find
from kctl_agent.errors import AgentError
from kctl_agent.messages import reducer_method

__all__ = ["Glance", "Order", "register", "summary"]

Row = dict[str, Any]

_TIMEOUT_SECONDS = 2.0
_FRAME_LINES = 9
"""Of the screen, what is neither a worker nor a partition."""


class Order(StrEnum):
    """By what partitions are sorted; its first letter is the key that chooses it."""

    LAG = "lag"
    PARTITION = "partition"
    WORKER = "worker"


_SORTED: dict[Order, Callable[[Row], Any]] = {
    # What is not known comes first: nobody reads it, or nobody can tell.
    Order.LAG: lambda row: (row["remaining_count"] is not None, -(row["remaining_count"] or 0), *_place(row)),
    Order.PARTITION: lambda row: _place(row),
    Order.WORKER: lambda row: (row["worker"] or "", *_place(row)),
}


@dataclass(frozen=True, slots=True)
class Glance:
    """What was answered; a part that was not is empty, and `problem` says why."""

    workers: list[Row] = field(default_factory=list)
    partitions: list[Row] = field(default_factory=list)
    storage: Row = field(default_factory=dict)
    problem: str | None = None

    @property
    def lag(self) -> int | None:
        """None when nothing of it is known."""
        known = [row["remaining_count"] for row in self.partitions if row["remaining_count"] is not None]
        return sum(known) if known else None

    @property
    def rows_per_second(self) -> float | None:
        rates = [row["rows_per_second"] for row in self.workers if row.get("rows_per_second") is not None]
        return sum(rates) if rates else None


def register(app: typer.Typer) -> None:
    app.command("top")(_top)


def _top(
    context: typer.Context,
    config: ConfigOption = None,
    sort: Annotated[Order, typer.Option("--sort", help="How partitions are sorted at first.")] = Order.LAG,
    every: Annotated[float, typer.Option("--every", min=0.2, metavar="SECONDS", help="How often it looks.")] = 2.0,
) -> None:
    """Watch a fleet: workers, partitions by lag, storage.

    Keys: l, p, w sort by lag, partition or worker; q ends it. Without a terminal it prints a line each time.
    """
    fleet = find(config_option(context, config), os.environ)
    try:
        if sys.stdin.isatty() and sys.stdout.isatty():
            _on_screen(fleet, sort, every)
        else:
            pause = Event()
            while True:
                typer.echo(f"{time.strftime('%H:%M:%S')}  {summary(_look(fleet))}")
                pause.wait(every)
    except KeyboardInterrupt:
        return


def _look(fleet: Fleet) -> Glance:
    def answer(rpc: str) -> Row:
        result: Row = ask(fleet, rpc, reducer_method(rpc), {}, _TIMEOUT_SECONDS).result
        return result

    try:
        return Glance(answer("workers")["rows"], answer("offset_checker")["rows"], answer("block_size"))
    except (KctlError, AgentError) as error:
        if not error.retriable:
            raise
        return Glance(problem=str(error))


def summary(glance: Glance) -> str:
    """One line: `3 of 4 workers run · lag 1,200 · 5,000 rows/s · 17 wait in the storage`"""
    if glance.problem is not None:
        return clean(glance.problem)
    up = sum(_state(row) == "running" for row in glance.workers)
    rate, waiting = glance.rows_per_second, glance.storage.get("pending")
    return (
        f"{up} of {len(glance.workers)} workers run · lag {_whole(glance.lag)} · {_whole(rate)} rows/s · "
        f"{_whole(waiting)} wait in the storage"
    )


def _on_screen(fleet: Fleet, sort: Order, every: float) -> None:
    from rich.console import Console, Group
    from rich.live import Live
    from rich.text import Text

    console = Console()
    with Live(console=console, screen=True, auto_refresh=False) as live, _keys() as key:
        while True:
            glance = _look(fleet)
            deadline = time.monotonic() + every
            while True:
                head = Text(f"fleet {clean(fleet.name)}  {time.strftime('%H:%M:%S')}  {summary(glance)}", style="bold")
                room = max(console.height - _FRAME_LINES - len(glance.workers), 3)
                foot = Text(f"l p w: sort by lag, partition, worker (now: {sort}) · q: end", style="dim")
                parts = [head, _workers(glance.workers), _partitions(glance.partitions, sort, room), foot]
                live.update(Group(*parts), refresh=True)
                pressed = key(deadline - time.monotonic())
                if pressed == "q":
                    return
                if pressed is None:
                    break
                sort = next((order for order in Order if order.value[0] == pressed), sort)


@contextmanager
def _keys() -> Iterator[Callable[[float], str | None]]:
    """A function that waits so long for a key; None when none was pressed."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)

    def key(seconds: float) -> str | None:
        if not select.select([descriptor], [], [], max(seconds, 0.0))[0]:
            return None
        return os.read(descriptor, 1).decode("ascii", "replace")

    try:
        yield key
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _workers(rows: list[Row]) -> Any:
    table = _table("worker", "state", "doing", ">since", "restarts", ">rss", ">rows/s", "last error")
    for row in rows:
        supervisor = row.get("supervisor") or {}
        state = _state(row)
        table.add_row(
            cell(row["name"]),
            cell(supervisor.get("state")),
            cell("paused" if supervisor.get("paused") and row.get("state") == "running" else row.get("state")),
            cell(duration(supervisor.get("since_seconds"))),
            cell(causes(supervisor)),
            cell(mebibytes(supervisor.get("resident_bytes") or row.get("rss_bytes"))),
            _whole(row.get("rows_per_second")),
            cell(row.get("last_error") or supervisor.get("last_error")),
            style=None if state == "running" else "yellow" if state != "fatal" else "red",
        )
    return table


def _partitions(rows: list[Row], sort: Order, room: int) -> Any:
    table = _table("partition", ">committed", ">end", ">lag", "worker")
    ordered = sorted(rows, key=_SORTED[sort])
    for row in ordered[:room]:
        table.add_row(
            clean(f"{row['topic']}-{row['partition']}"),
            _whole(row["current_offset"]),
            _whole(row["kafka_max_offset"]),
            _whole(row["remaining_count"]),
            cell(row["worker"]),
        )
    if len(ordered) > room:
        table.caption = f"{len(ordered) - room} more partitions"
    return table


def _table(*headings: str) -> Any:
    """A heading that begins with `>` is that of numbers."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, expand=True, header_style="bold underline")
    for heading in headings:
        is_number = heading.startswith(">")
        table.add_column(heading.lstrip(">"), justify="right" if is_number else "left", no_wrap=True)
    return table


def _state(row: Row) -> str | None:
    """The supervisor's word; of one that is only attached its own."""
    supervisor = row.get("supervisor")
    return str(supervisor["state"]) if supervisor else row.get("state")


def _place(row: Row) -> tuple[str, int]:
    return str(row["topic"]), int(row["partition"])


def _whole(number: float | None) -> str:
    return UNKNOWN if number is None else f"{number:,.0f}"
