"""`kctl top`: a live view of the fleet."""

from __future__ import annotations

import argparse
import os
import select
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from itertools import repeat
from threading import Event
from typing import TYPE_CHECKING, Any

from msgspec import structs

from kctl.cli.command import CONFIG, Command, Option
from kctl.cli.fleet.ask import OF_HOSTS, ask, lacks, of_hosts, verdict_of
from kctl.cli.fleet.worker_table import TOP, worker_table
from kctl.cli.output import echo
from kctl.cli.table import UNKNOWN, clean, clip, columns, duration, render
from kctl.daemon_threads import DaemonThreads
from kctl.errors import KctlError, NoMaster
from kctl.fields import moment
from kctl.fleets import Fleet, find
from kctl.rows.partitions import Offsets, PartitionRow
from kctl.rows.verdict import Level, Verdict
from kctl.rows.workers import NOT_GROUP_MEMBERS, AgentState, WorkerRow, Workers
from kctl.rpc.decode import answered
from kctl.terminal import plain
from kctl_agent.errors import AgentError
from kctl_agent.replies.block_size import StorageReply

if TYPE_CHECKING:
    from rich.text import Text

Key = Callable[[float], str | None]
"""Waits this many seconds for a key. Escape sequences such as arrows are one key."""
Scope = Mapping[str, str | bool]  # parameters of every question: `host`, `local` or none
_TIMEOUT_SECONDS = 2.0
_ASKED = ("workers", "offset_checker", "block_size")
_THREADS = DaemonThreads(len(_ASKED), "kctl-top")
"""They ask at the same time, so that a frozen process delays a screen by one time-out, and Ctrl-C not at all."""
_FRAME_LINES = 6
_PARTITION_COLUMNS = columns("partition >committed >end >lag worker")
_STYLES = {Level.OK: "", Level.DEGRADED: "yellow", Level.UNKNOWN: "yellow", Level.FAILING: "red"}


@contextmanager
def keys() -> Iterator[Key]:
    """Yields a function that waits for a key. Inside the `with` block, the terminal does not show what is typed."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)
    pending: list[str] = []

    def key(seconds: float) -> str | None:
        if not pending:
            if not select.select([descriptor], [], [], max(seconds, 0.0))[0]:
                return None
            text = os.read(descriptor, 256).decode("utf-8", "replace")
            pending.extend([text] if text.startswith("\x1b") else text)
        return pending.pop(0) if pending else None

    try:
        yield key
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def line(text: str, columns: int, style: str = "") -> Text:
    """Returns a line for the screen, cut at `columns` columns."""
    from rich.text import Text

    # Not a str, in which rich would read `[link=…]` as markup.
    return Text(clip(text, columns), style, no_wrap=True)


class SortOrder(StrEnum):
    """How partitions are sorted. The user selects an order by typing its first letter."""

    LAG = "lag"
    PARTITION = "partition"
    WORKER = "worker"


_SORTED: dict[SortOrder, Callable[[PartitionRow], Any]] = {
    # Unknown lag comes first.
    SortOrder.LAG: lambda row: (row.remaining_count is not None, -(row.remaining_count or 0), *_name(row)),
    SortOrder.PARTITION: lambda row: _name(row),
    SortOrder.WORKER: lambda row: (row.worker or "", *_name(row)),
}


def _name(row: PartitionRow) -> tuple[str, int]:
    return row.topic, row.partition


@dataclass(frozen=True, slots=True)
class FleetTopView:
    """What one screen shows. If the master did not answer, `problem` has the reason, and no other field is set."""

    processes: tuple[WorkerRow, ...] = ()
    partitions: tuple[PartitionRow, ...] = ()
    storage: StorageReply = field(default_factory=StorageReply)
    problem: str | None = None
    missing: tuple[str, ...] = ()  # parts that did not answer, and what is stale or unknown
    verdict: Verdict | None = None

    @property
    def workers(self) -> list[WorkerRow]:
        return [row for row in self.processes if row.kind not in NOT_GROUP_MEMBERS]

    @property
    def lag(self) -> int | None:
        rows = {(row.topic, row.partition): row for row in reversed(self.partitions)}  # the group's before others' rows
        known = [row.remaining_count for row in rows.values() if row.remaining_count is not None]
        return sum(known) if known else None

    @property
    def rows_per_second(self) -> float | None:
        rates = [row.rows_per_second for row in self.workers if row.rows_per_second is not None]
        return sum(rates) if rates else None


def _run(options: argparse.Namespace, env: Mapping[str, str]) -> None:
    with suppress(KeyboardInterrupt):
        _top(find(options.config, env), of_hosts(options), SortOrder(options.sort), options.every)


def _top(fleet: Fleet, scope: Scope, sort: SortOrder, every: float) -> None:
    if sys.stdin.isatty() and sys.stdout.isatty():
        _on_screen(fleet, scope, sort, every)
        return
    pause, is_first = Event(), True
    while True:
        glance = _poll(fleet, scope, needs_master=is_first)
        is_first = False
        echo("  ".join((moment(time.time()), "; ".join((*_verdict(glance), summary(glance), *glance.missing)))))
        pause.wait(every)


def _poll(fleet: Fleet, scope: Scope, *, needs_master: bool = False) -> FleetTopView:
    try:
        asked = [_THREADS.submit(partial(ask, fleet, rpc, scope, _TIMEOUT_SECONDS)) for rpc in _ASKED]
        workers, offsets, storage = (each.result() for each in asked)
    except (KctlError, AgentError) as error:
        if not error.retriable or (needs_master and isinstance(error, NoMaster)):
            raise
        return FleetTopView(problem=str(error))
    verdict = verdict_of(workers)
    known = () if verdict is None else {verdict.about, *(each.about for each in verdict.also)}
    return FleetTopView(
        answered("workers", Workers, workers.raw).rows,
        _of_now(answered("offset_checker", Offsets, offsets.raw)),
        answered("block_size", StorageReply, storage.raw),
        missing=tuple(lacks(workers, offsets, storage, known=known)),
        verdict=verdict,
    )


def _of_now(offsets: Offsets) -> tuple[PartitionRow, ...]:
    unknown, limit = {"remaining_count": None}, offsets.stale_after_seconds
    return tuple(structs.replace(row, **unknown) if (row.age_seconds or 0) > limit else row for row in offsets.rows)


def summary(glance: FleetTopView) -> str:
    """Returns a line such as `3 of 4 workers run · lag 1,200 · 5,000 rows/s · 17 wait in the storage`."""
    if glance.problem is not None:
        return clean(glance.problem)
    sinkers, engines = ([row for row in glance.processes if row.kind == kind] for kind in ("sinker", "engine"))
    stopped = sum(map(_is_stopped, glance.processes))
    oldest = glance.verdict.oldest_unhandled_seconds if glance.verdict else None
    parts = [
        _running("worker", glance.workers),
        *([_running("sinker", sinkers)] if sinkers else []),
        *([_running("engine", engines)] if any(_state(row) != "running" for row in engines) else []),
        *([f"{stopped} stopped by request"] if stopped else []),
        *([f"oldest unhandled {duration(oldest) or UNKNOWN}"] if glance.verdict else []),
        f"lag {_whole(glance.lag)}",
        f"{_whole(glance.rows_per_second)} rows/s",
        f"{_whole(glance.storage.pending)} wait in the storage",
        *([f"{_whole(glance.storage.dead)} dead letters"] if glance.storage.dead else []),
    ]
    return " · ".join(parts)


def _verdict(glance: FleetTopView) -> list[str]:
    if glance.verdict is None or glance.problem is not None:
        return []
    others = (f"and {each.level}: {each.reason}" for each in glance.verdict.also)
    return [clean(text) for text in (glance.verdict.sentence, *others)]


def _running(kind: str, rows: list[WorkerRow]) -> str:
    wanted = [row for row in rows if not _is_stopped(row)]
    up = sum(_state(row) == "running" for row in wanted)
    return f"{up} of {len(wanted)} {kind}s run"


def _on_screen(fleet: Fleet, scope: Scope, sort: SortOrder, every: float) -> None:
    from rich.console import Console, Group
    from rich.live import Live

    console = Console(file=plain(sys.stdout))
    with Live(console=console, screen=True, auto_refresh=False) as live, keys() as key:
        while True:
            glance = _poll(fleet, scope)
            deadline = time.monotonic() + every
            while True:
                live.update(Group(*_screen(fleet, glance, sort, console.width, console.height)), refresh=True)
                pressed = key(deadline - time.monotonic())
                if pressed == "q":
                    return
                if pressed is None:
                    break
                sort = next((order for order in SortOrder if order.value[0] == pressed), sort)


def _screen(fleet: Fleet, glance: FleetTopView, sort: SortOrder, columns: int, lines: int) -> list[Text]:
    verdict = _verdict(glance)
    style = _STYLES[glance.verdict.level] if glance.verdict else ""
    shown = f"fleet {clean(fleet.name)} at {moment(time.time())}"
    room = max(lines - _FRAME_LINES - len(glance.processes) - len(verdict) - len(glance.missing), 3)
    return [
        *(line(text, columns, style) for text in verdict),
        line(summary(glance), columns, "bold"),
        *(line(text, columns, "yellow") for text in glance.missing),
        *_workers(glance.processes, columns),
        *_partitions(glance.partitions, sort, room, columns),
        line(f"{shown} · l p w: sort by lag, partition, worker (now: {sort}) · q: end", columns, "dim"),
    ]


def _workers(rows: Sequence[WorkerRow], columns: int) -> list[Text]:
    # The error comes last, so that name and state are always visible.
    lines = worker_table(map(_with_pause, rows), TOP)
    return [
        line(lines[0], columns, "bold"),
        *(line(*each) for each in zip(lines[1:], repeat(columns), map(_style, rows))),
    ]


def _with_pause(row: WorkerRow) -> WorkerRow:
    # A process with paused partitions is shown as paused, because there is no room for the partitions.
    is_paused = row.state == AgentState.RUNNING and row.supervisor is not None and row.supervisor.paused
    return replace(row, state=AgentState.PAUSED) if is_paused else row


def _style(row: WorkerRow) -> str:
    state = _state(row)
    if state == "running" or _is_stopped(row):
        return ""
    return "red" if state == "fatal" else "yellow"


def _partitions(rows: Sequence[PartitionRow], sort: SortOrder, room: int, columns: int) -> list[Text]:
    ordered = sorted(rows, key=_SORTED[sort])
    cells = [
        (
            f"{row.topic}-{row.partition}",
            _whole(row.current_offset),
            _whole(row.kafka_max_offset),
            _whole(row.remaining_count),
            row.worker,
        )
        for row in ordered[:room]
    ]
    heading, *lines = render(_PARTITION_COLUMNS, cells)
    if len(ordered) > room:
        lines.append(f"{len(ordered) - room} more partitions")
    return [line(heading, columns, "bold"), *(line(each, columns) for each in lines)]


def _is_stopped(row: WorkerRow) -> bool:
    return row.supervisor is not None and row.supervisor.desired == "stopped"


def _state(row: WorkerRow) -> str | None:
    # Without a supervisor, it is an attached application, which reports its own state.
    return row.state if row.supervisor is None else row.supervisor.state


def _whole(number: float | None) -> str:
    return UNKNOWN if number is None else f"{number:,.0f}"


COMMAND = Command(
    "top",
    "Watch a fleet.",
    (
        CONFIG,
        Option(
            ("--sort",), "how partitions are sorted at first", default=SortOrder.LAG, choices=tuple(map(str, SortOrder))
        ),
        Option(("--every",), "how often it refreshes", "number", "SECONDS", 2.0, least=0.2),
        *OF_HOSTS,
    ),
    "kctl top --sort worker",
    "Shows the verdict, workers, partitions by lag, and the storage. Keys: l, p, w sort by lag, partition or worker; q "
    "quits. Without a terminal it prints one line per refresh, and ends with exit code 5 if no master answers at the "
    "start.",
    run=_run,
)
