"""`kctl top --groups`: on a terminal of 80 columns, and as lines without; which key does what."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from kctl.cli.groups.groups import Sort
from kctl.cli.groups.top_view import GroupsTopView, Trends, View, summary, table
from kctl.status import Status
from tests.served_groups import Latest, cluster, group, serving_groups
from tests.terminals import Terminal, plain

if TYPE_CHECKING:
    from tests.unit.kctl_cli.conftest import Kctl

BAD = "\x1b]0;owned\x07\x1b[2J\u202eevil[link=http://x]y[/link]"
LONG = "a-group-whose-name-is-much-longer-than-there-is-room-for"
GROUPS = (
    group("billing", 6, growth=1.5),
    group(LONG, 1234567, growth=-3.0, status=Status.STALLED, reason="nothing is committed for 3 minutes"),
    group("payments-us", 0, growth=0.0, status=Status.WARN, reason="the lag rises"),
)


@pytest.fixture
def latest() -> Latest:
    return {"main": cluster("main", *GROUPS)}


@pytest.fixture
def url(latest: Latest) -> Iterator[str]:
    with serving_groups(latest) as served:
        yield served


def row(name: str = "billing", lag: int | None = 6, **more: Any) -> dict[str, Any]:
    known = {"cluster": "main", "group": name, "lag": lag, "lag_seconds": 2.5, "growth_per_second": 0.0}
    return {**known, "status": "ok", "reason": "so it is", **more}


def pressed(view: View, keys: str) -> View:
    for key in keys:
        view = view.pressed(key)
    return view


def frame_of(terminal: Terminal) -> list[str]:
    """The lines of the last whole screen."""
    whole = [frame for frame in terminal.seen.split("\x1b[H") if "q: end" in frame]
    return [line.rstrip() for line in plain(whole[-1])]


def test_keys_sort_filter_and_end() -> None:
    view = View()

    assert [pressed(view, key).sort for key in "sltgn?"] == [
        *(Sort.STATUS, Sort.LAG, Sort.LAG_SECONDS, Sort.GROWTH, Sort.GROUP),
        Sort.STATUS,
    ]
    assert pressed(view, "/pay").help().startswith("/pay█")
    assert pressed(view, "/pay\n").patterns == ["*pay*"]
    assert pressed(view, "/pay-*\n").patterns == ["pay-*"]
    assert pressed(view, "/payy\x7f\n/\x7f\n").patterns == ["*pa*"]
    assert pressed(view, "/pay\nl\x1b") == View(Sort.LAG)
    assert pressed(view, "/pay\x1b").patterns == []
    assert pressed(view, "/q").is_ended is False
    assert pressed(view, "q").is_ended is True
    assert view.pressed("\x1b[A") == view


def test_a_trend_is_that_of_the_last_polls_as_high_as_its_highest() -> None:
    trends = Trends()

    for lag in (None, 0, 50, 100, 100):
        trends.add([row(lag=lag), row("empty", 0)])

    assert trends.bars(row()) == " ▁▄██"
    assert trends.bars(row("empty")) == "▁▁▁▁▁"
    trends.add([row("empty", 0)])
    assert trends.bars(row()) == ""
    for _ in range(20):
        trends.add([row("empty", 0)])
    assert len(trends.bars(row("empty"))) == 10


def test_the_summary_counts_trouble_and_what_is_not_known_is_a_dash() -> None:
    answer = {"total": 2345, "statuses": {"ok": 2341, "stalled": 3, "losing": 1}, "lag": 1200}

    assert summary(GroupsTopView(answer)) == "2,345 groups · 1 losing · 3 stalled · lag 1,200"
    assert summary(GroupsTopView({"total": 0, "statuses": {}, "lag": None})) == "0 groups · lag -"
    assert summary(GroupsTopView(problem="nobody\x1b")) == r"nobody\u001b"


def test_a_long_name_is_cut_before_lag_growth_and_status_are() -> None:
    rows = [row(LONG, 1_234_567_890, growth_per_second=-12345.6, lag_seconds=86_000.0, status="rebalancing")]

    for columns, has_clusters, has_reason in ((80, False, False), (80, True, False), (110, True, True)):
        [_, line] = table(rows, Trends(), columns, has_clusters)
        for text in ("1,234,567,890", "23h53m", "-12345.6", "rebalancing"):
            assert text in line[:columns], (columns, has_clusters)
        assert ("so it is" in line) == has_reason


def test_without_a_terminal_it_prints_a_line_each_time(latest: Latest, url: str) -> None:
    latest["late"] = None
    words = [sys.executable, "-m", "kctl", "top", "--groups", "--url", url, "--every", "0.2"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as top:
        assert top.stdout is not None
        lines = [top.stdout.readline().strip() for _ in range(2)]
        top.terminate()

    shown = "3 groups · 1 stalled · 1 warn · lag 1,234,573; the first poll of cluster late is not finished yet"
    assert [line.partition("  ")[2] for line in lines] == [shown, shown]


def test_what_cannot_be_is_wrong_usage_and_without_an_exporter_it_ends_with_exit_code_5(kctl: Kctl, url: str) -> None:
    with serving_groups({}) as gone:
        pass

    assert kctl("top", "--groups", "--url", gone).code == 5
    assert kctl("top", "--groups", "--url", url, "--cluster", "mian").code == 2
    wrong = kctl("top", "--groups", "--sort", "worker")
    assert (wrong.code, wrong.err) == (
        2,
        "kctl: --sort takes group, lag, lag_seconds, growth, status with --groups, not `worker`\n",
    )
    assert kctl("top", "--sort", "growth").code == 2
    assert kctl("top", "--cluster", "main").code == 2


@pytest.mark.shows("`kctl top --groups`: the worst first, with its trend; keys sort and filter")
def test_on_a_terminal_of_80_columns_the_worst_come_first_and_keys_sort_and_filter(latest: Latest, url: str) -> None:
    with Terminal("top", "--groups", "--url", url, "--every", "60", columns=80, rows=24) as terminal:
        terminal.read_until("q: end")
        first = frame_of(terminal)
        terminal.press("n")
        terminal.read_until("now: name.*q: end", after=len(terminal.seen))
        by_name = frame_of(terminal)
        terminal.press("/pay\n")
        terminal.read_until("Esc: all", after=len(terminal.seen))
        filtered = frame_of(terminal)
        terminal.press("q")
        assert terminal.process.wait(60) == 0

    assert first[0].split("  ", 1)[1] == "3 groups · 1 stalled · 1 warn · lag 1,234,573"
    assert first[1].split() == ["group", "lag", "behind", "growth/s", "status", "trend"]
    assert [line.split()[0] for line in first[2:5]] == [f"{LONG[:20]}…", "payments-us", "billing"]
    assert first[2].split()[1:6] == ["1,234,567", "2s", "-3.0", "stalled", "█"]
    assert max(map(len, first)) <= 80
    assert [line.split()[0][:7] for line in by_name[2:5]] == ["a-group", "billing", "payment"]
    assert [line.split()[0] for line in filtered[2:3]] == ["payments-us"]
    assert filtered[0].endswith("  1 group · 1 warn · lag 0")


def test_on_a_terminal_more_groups_than_rows_are_counted_and_what_is_missing_is_a_line(
    latest: Latest, url: str
) -> None:
    latest["main"] = cluster("main", *(group(f"g-{number:04}", number) for number in range(2345)))
    latest["other"] = replace(cluster("other", errors={"members": "broker 2 hangs"}), is_ready=True)
    with Terminal("top", "--groups", "--url", url, "--every", "0.2", columns=80, rows=24) as terminal:
        terminal.read_until("q: end")
        frame = frame_of(terminal)
        latest["main"] = cluster("main", *(group(f"g-{number:04}", number * 2) for number in range(2345)))
        terminal.read_until("4,688.*q: end", after=len(terminal.seen))
        terminal.read_until("▄█.*q: end")
        assert terminal.interrupt() == 0

    assert frame[1] == "cluster other: members: broker 2 hangs"
    assert [line.split()[:3] for line in frame[3:5]] == [["main", "g-2344", "2,344"], ["main", "g-2343", "2,343"]]
    assert (frame[22], len(frame)) == ("2,326 more groups", 24)
    assert max(map(len, frame)) <= 80


def test_it_outlives_an_exporter_that_is_away(latest: Latest) -> None:
    with ExitStack() as stack:
        url = stack.enter_context(serving_groups(latest))
        with Terminal("top", "--groups", "--url", url, "--every", "0.2", columns=80, rows=24) as terminal:
            terminal.read_until("billing.*q: end")
            stack.close()
            terminal.read_until(f"nothing answers at {url}.*q: end")
            terminal.press("q")
            assert terminal.process.wait(60) == 0


def test_names_and_reasons_cannot_steer_the_terminal(latest: Latest, url: str) -> None:
    latest["main"] = cluster("main", group(BAD, 6, status=Status.WARN, reason=BAD))
    with Terminal("top", "--groups", "--url", url, "--every", "60", columns=300, rows=24) as terminal:
        seen = terminal.read_until("evil.*q: end")
        terminal.press("/\x07\u202e")
        seen = terminal.read_until("Enter: show these", after=len(seen))

    assert r"\u001b]0;owned\u0007" in seen
    assert "[link=http://x]y[/link]" in seen
    assert all(bad not in seen for bad in ("\x1b]", "\x07", "\u202e")), ascii(seen)
