from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kctl.cli.fleet.ask import lacks
from kctl.cli.fleet.top import FleetTopView, SortOrder, _of_now, _screen, summary
from kctl.fleets import Fleet
from kctl.rows.partitions import Offsets, PartitionRow
from kctl.rows.verdict import Finding, Level, Verdict
from kctl.rows.workers import Workers
from kctl.rpc.client import Failure, Reply
from kctl.rpc.decode import decoded
from kctl_agent.replies.encode import encoded
from tests.command_lines import Master
from tests.replies import raw, status_json
from tests.servers.scripted_agent import Answers
from tests.terminals import Terminal

ROWS: list[dict[str, Any]] = [
    {
        "name": "worker-0",
        "state": "running",
        "rows_per_second": 1234.5,
        "last_error": None,
        "supervisor": status_json(restarts=1, restarts_by_cause={"memory": 1}),
    },
    {"name": "worker-1", "state": None, "supervisor": status_json(state="backoff", last_error="died")},
]
OFFSETS = tuple(
    PartitionRow("t", number, current_offset=5, kafka_max_offset=5 + lag, remaining_count=lag, worker=worker)
    for number, lag, worker in ((0, 3, "worker-1"), (1, 900, "worker-0"))
)
SCRIPT = {
    "workers": Answers({"rows": ROWS}),
    "offset_checker": Answers(encoded(Offsets(OFFSETS, 30.0))),
    "block_size": Answers({"pending": 17, "processing": 0, "dead": 0, "bytes": 1, "limit": None}),
}
ERROR = "the query could not be stored: database or disk is full " * 5
SINKER = {"name": "sinker-0", "kind": "sinker", "state": "idle", "rows_per_second": 7.0}
LINE = "1 of 2 workers run · lag 903 · 1,234 rows/s · 17 wait in the storage"


def test_a_glance_is_one_line_of_the_groups_workers_sinkers_and_lag() -> None:
    assert summary(FleetTopView()) == "0 of 0 workers run · lag - · - rows/s · - wait in the storage"
    assert summary(FleetTopView(problem="no master is running there")) == "no master is running there"

    up, down = status_json(), status_json(state="stopped", desired="stopped")
    rows = [
        {**ROWS[0], "kind": "worker"},
        {"name": "worker-1", "kind": "worker", "supervisor": down},
        *({**SINKER, "supervisor": each} for each in (up, status_json(state="backoff"))),
    ]
    glance = FleetTopView(decoded(Workers, raw({"rows": rows})).rows)

    assert summary(glance).startswith("1 of 1 workers run · 1 of 2 sinkers run · 1 stopped by request · lag - · 1,234")

    of_group = PartitionRow("t", 0, remaining_count=60), PartitionRow("t", 1)
    attached = PartitionRow("t", 0, remaining_count=90)
    assert FleetTopView(partitions=(*of_group, attached)).lag == 60

    stale = PartitionRow("t", 0, remaining_count=7, age_seconds=85.0)
    of_now = PartitionRow("t", 1, remaining_count=3, age_seconds=0.5)
    assert [row.remaining_count for row in _of_now(Offsets((stale, of_now), 30.0))] == [None, 3]
    assert _of_now(Offsets((stale, of_now), 90.0)) == (stale, of_now), "the master collects each half minute"


def test_without_a_terminal_it_prints_a_line_each_time(master: Master) -> None:
    master(SCRIPT)
    words = [sys.executable, "-m", "kctl", "top", "--every", "0.2"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as top:
        assert top.stdout is not None
        lines = [top.stdout.readline().strip() for _ in range(2)]
        top.terminate()

    assert [line.partition("  ")[2] for line in lines] == [LINE, LINE]


@pytest.mark.parametrize("columns", [100, 120, 160])
def test_names_and_states_are_shown_beside_a_long_error_and_what_is_stale_beneath_the_summary(columns: int) -> None:
    rows = [{**row, "last_error": ERROR} for row in ROWS]
    gap = "the brokers' offsets are up to 13 s old"
    glance = FleetTopView(decoded(Workers, raw({"rows": rows})).rows, OFFSETS, missing=(gap,))
    fleet = Fleet("orders", Path("/run"), Path("/kctl.toml"))

    lines = [line.plain for line in _screen(fleet, glance, SortOrder.LAG, columns, 40)]

    assert lines[1] == gap
    assert [line.split()[:2] for line in lines[3:5]] == [["worker-0", "running"], ["worker-1", "backoff"]]
    assert all("the query" in line for line in lines[3:5])
    assert max(map(len, lines)) <= columns
    assert lines[0] == summary(glance)
    assert lines[-1].startswith("fleet orders at ")


def test_what_several_answers_lack_is_one_line_and_what_the_verdict_has_is_none() -> None:
    silent = Failure("timeout", "no answer within 2 s", sender="worker-2")
    old = Failure("stale", "the brokers' offsets are 13 s old", sender="brokers")
    counted = Failure("stale", "the storage was last counted 9 s ago", sender="storage")
    workers, offsets, storage = (
        Reply(True, complete=False, asked=asked, failed=failed)
        for asked, failed in (
            (("sinker-0", "worker-1", "worker-2"), (silent,)),
            (("worker-1", "worker-2"), (silent, old)),
            (("sinker-0",), (counted,)),
        )
    )

    lines = lacks(workers, offsets, storage, known={"brokers"})

    assert lines == [
        "1 of 3 did not answer: worker-2 (timeout: no answer within 2 s)",
        "the storage was last counted 9 s ago",
    ]


def test_the_first_line_is_the_verdict_and_what_else_is_wrong_follows() -> None:
    other = Finding(Level.DEGRADED, "workers", "1 of 2 workers has not worked", 1.0)
    verdict = Verdict(Level.FAILING, "storage", "the storage has been full", 1.0, (other,))
    fleet = Fleet("orders", Path("/run"), Path("/kctl.toml"))

    lines = _screen(fleet, FleetTopView(verdict=verdict), SortOrder.LAG, 100, 40)

    assert [line.plain for line in lines[:2]] == [
        "failing: the storage has been full",
        "and degraded: 1 of 2 workers has not worked",
    ]
    assert lines[0].style == "red"


@pytest.mark.shows("`kctl top` works in full screen and as lines, with errors of any length")
def test_on_a_terminal_it_fills_the_screen_sorts_by_a_key_and_ends_with_q(master: Master) -> None:
    master(SCRIPT)
    with Terminal("top", "--every", "60", columns=120, rows=30) as terminal:
        seen = terminal.read_until(f"{re.escape(LINE)}.*1 memory.*worker-1.*backoff.*died.*t-1.*900.*t-0")
        terminal.press("p")
        terminal.read_until("t-0.*t-1.*now: partition", after=len(seen))
        terminal.press("q")
        assert terminal.process.wait(60) == 0
