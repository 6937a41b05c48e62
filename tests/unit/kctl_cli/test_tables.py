import re
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kctl.cli.fleet.ask import lacks
from kctl.cli.fleet.status import pause_text
from kctl.cli.fleet.tables import check, compact_partitions, lines_of, read
from kctl.cli.fleet.top import FleetTopView, SortOrder, _of_now, _screen, summary
from kctl.cli.table import Column, cell, clip, columns, duration, render, width
from kctl.errors import IncompleteAnswer, ThresholdExceeded
from kctl.fields import moment
from kctl.fleets import Fleet
from kctl.master.reduction import COMMANDS
from kctl.rows.partitions import LagTotals, Offsets, PartitionRow
from kctl.rows.verdict import Finding, Level, Verdict
from kctl.rows.workers import Workers
from kctl.rpc.client import Failure, Reply
from kctl.rpc.decode import decoded
from kctl_agent.replies.block_size import StorageReply
from kctl_agent.replies.encode import encoded
from kctl_agent.replies.fields import TopicPartition
from kctl_agent.replies.workers import Scope
from tests.command_lines import Master
from tests.replies import raw, reduced_json, status_json
from tests.servers.scripted_agent import Answers
from tests.terminals import Terminal


def shown(command: str, result: dict[str, Any], *, is_wide: bool = False) -> list[str]:
    return lines_of(command, read(command, raw(result)), is_wide=is_wide)


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_the_result_of_a_fleet_without_workers_can_be_shown(command: str) -> None:
    assert shown(command, reduced_json(command, []))


def test_old_offsets_have_their_age_and_members_that_do_not_agree_are_named() -> None:
    rows = [{"topic": "orders", "partition": number, "age_seconds": age} for number, age in enumerate((75.0, 0.5))]

    lines = shown("offset_checker", {"rows": rows})

    assert lines[0].endswith("worker    age")
    assert lines[1].endswith("1m15s")

    members = [{"member_id": "id", "worker": f"worker-{n}", "is_leader": False, "generation": n} for n in (3, 4)]

    lines = shown("member_leader", {"leader": None, "generation": 4, "agreed": False, "members": members})

    assert lines[:2] == ["leader: -", "the members do not agree; generations: 3,4"]


@pytest.mark.shows("`kctl rpc workers` fits into 80 columns except for errors; `-o wide` cuts nothing")
def test_a_long_error_of_a_worker_is_cut_unless_all_is_wanted() -> None:
    row = {"name": "worker-0", "pid": 4711, "last_error": "lost\nconnection " * 20, "supervisor": status_json()}

    short = shown("workers", {"rows": [row]})
    _, wide = shown("workers", {"rows": [row]}, is_wide=True)

    assert (max(map(len, short)), short[1][-1]) == (120, "…")
    assert short[0].index("last-error") < 80, "what every worker has fits into 80 columns"
    assert wide.endswith("lost\\nconnection " * 19 + "lost\\nconnection")


def test_durations_have_two_units_and_partitions_are_written_compactly() -> None:
    texts = {None: None, 0.9: "0s", 59.9: "59s", 60: "1m00s", 3599: "59m59s", 7500: "2h05m", 100_000: "1d03h"}
    assert {seconds: duration(seconds) for seconds in texts} == texts

    pairs = [("b", 1), ("a", 10), ("a", 0), ("a", 2), ("a", 1)]

    assert compact_partitions(TopicPartition(*pair) for pair in pairs) == "a[0-2,10] b[1]"
    assert compact_partitions([TopicPartition("a", n) for n in (6, 1, 0)]) == "a[0-1,6]"
    assert compact_partitions([]) == ""
    assert compact_partitions([TopicPartition("a", n) for n in range(0, 1000, 2)], 60) == "a[500 partitions]"


def test_a_moment_is_the_same_in_every_view_wherever_the_terminal_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    try:
        assert moment(1_767_225_600.9) == "2026-01-01T00:00:00Z"
        assert pause_text(Scope("orders", 3, "ann", 1_767_225_600)) == (
            "orders-3 is paused by ann since 2026-01-01T00:00:00Z"
        )
    finally:
        monkeypatch.delenv("TZ")
        time.tzset()


def test_cells_are_set_by_their_value_and_width() -> None:
    assert [cell(value) for value in (None, False, "", [], 0, True, [1, 2])] == ["-", "-", "-", "-", "0", "yes", "1,2"]
    assert [width("注文"), width("Ko\u0308ln")] == [4, 4]
    assert render(columns("name >lag"), [("注文", 5), ("abcd", 6)]) == ["name  lag", "注文    5", "abcd    6"]
    assert [clip(text, 6) for text in ("abcdef", "abcdefg", "注文注文")] == ["abcdef", "abcde…", "注文…"]
    numbers = [Column("100%", is_number=True), Column("%s")]
    assert render(numbers, [(-12345, 1), (7, None)]) == ["  100%  %s", "-12345  1", "     7  -"]
    lines = render(columns(">n name"), [(1, "a"), (True, None), (1.0, ""), (0, "a"), (False, "käse\x1b"), (None, "a")])

    assert lines == ["  n  name", "  1  a", "yes  -", "1.0  -", "  0  a", "  -  käse\\u001b", "  -  a"]


@given(st.text(max_size=30), st.integers(1, 20))
def test_a_clipped_text_is_never_wider_than_asked(text: str, longest: int) -> None:
    assert width(clip(text, longest)) <= longest


def lag(total: int | None, *unknown: int) -> LagTotals:
    return LagTotals(total, tuple(TopicPartition("a", number) for number in unknown))


def offsets(*remaining: int | None) -> Offsets:
    return Offsets(tuple(PartitionRow("a", number, remaining_count=each) for number, each in enumerate(remaining)))


@pytest.mark.parametrize(
    ("rpc", "result", "why"),
    [
        ("kafka_lag", lag(10), None),
        ("kafka_lag", lag(11), "the total lag is 11, above 10"),
        ("kafka_lag", lag(11, 3), "the total lag is 11, above 10"),
        ("kafka_lag", lag(None), "is unknown whether"),
        ("kafka_lag", lag(0, 3), "is unknown whether"),
        ("offset_checker", offsets(10, 0), None),
        ("offset_checker", offsets(0, 11), "the highest remaining-count is 11, above 10"),
        ("offset_checker", offsets(0, None), "is unknown whether"),
        ("block_size", StorageReply(pending=10), None),
        ("block_size", StorageReply(pending=11), "the number of pending messages is 11, above 10"),
        ("block_size", StorageReply(pending=None), "is unknown whether"),
    ],
)
def test_a_value_above_the_limit_and_one_that_may_be_are_errors(rpc: str, result: Any, why: str | None) -> None:
    kind = IncompleteAnswer if why == "is unknown whether" else ThresholdExceeded
    expected: Any = pytest.raises(kind, match=why) if why else nullcontext()
    with expected:
        check(rpc, result, 10)


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
