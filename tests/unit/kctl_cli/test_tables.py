from __future__ import annotations

import time
from typing import Any

import pytest

from kctl.cli.fleet.tables import compact_partitions, lines_of, pause_text, read
from kctl.cli.table import duration
from kctl.fields import moment
from kctl.master.reduction import COMMANDS
from kctl_agent.replies.topic_partition import TopicPartition
from kctl_agent.replies.workers import Scope
from tests.replies import raw, reduced_json, status_json


def shown(command: str, result: dict[str, Any], *, is_wide: bool = False) -> list[str]:
    return lines_of(command, read(command, raw(result)), is_wide=is_wide)


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_the_result_of_a_fleet_without_workers_can_be_shown(command: str) -> None:
    assert shown(command, reduced_json(command, []))


def offset_row(worker: str | None, age: float) -> dict[str, Any]:
    return {
        "topic": "orders",
        "partition": 0,
        "current_offset": None if worker is None else 40,
        "kafka_max_offset": 100,
        "remaining_count": None if worker is None else 60,
        "worker": worker,
        "age_seconds": age,
    }


@pytest.mark.shows("tables have the columns of Kafka's tools; unknown is `-`, and zero is 0")
def test_offset_checker_has_the_columns_that_operators_know() -> None:
    rows = [offset_row("worker-0", 0.1), {**offset_row(None, 0.1), "partition": 10}]

    assert shown("offset_checker", {"rows": rows}) == [
        "topic   partition  current-offset  kafka-max-offset  remaining-count  worker",
        "orders          0              40               100               60  worker-0",
        "orders         10               -               100                -  -",
    ]


def test_offset_checker_shows_the_age_of_offsets_that_are_old() -> None:
    lines = shown("offset_checker", {"rows": [offset_row("worker-0", 75.0), offset_row("worker-1", 0.5)]})

    assert lines[0].endswith("worker      age")
    assert lines[1].endswith("1m15s")


def test_member_leader_reports_members_that_do_not_agree() -> None:
    members: list[dict[str, Any]] = [
        {"member_id": "id", "worker": f"worker-{n}", "is_leader": False, "generation": generation, "partitions": []}
        for n, generation in enumerate((3, 4, None))
    ]

    lines = shown("member_leader", {"leader": None, "generation": 4, "agreed": False, "members": members})

    assert lines[:2] == ["leader: -", "the members do not agree; generations: 3,4"]


@pytest.mark.shows("`kctl rpc workers` fits into 80 columns except for errors; `-o wide` cuts nothing")
def test_workers_shows_what_each_is_doing() -> None:
    row = {
        "name": "worker-0",
        "state": "running",
        "pid": 4711,
        "uptime_seconds": 3905.2,
        "rss_bytes": 734003200,
        "batch_id": 12,
        "last_batch_seconds": 1.234,
        "rows_per_second": 81234.5,
        "last_error": "lost\nconnection",
        "supervisor": status_json(
            since_seconds=3905.2, restarts=3, restarts_by_cause={"signal": 2, "memory": 1}, resident_bytes=1468006400
        ),
    }
    guest = {"name": "guest", "state": "running", "state_seconds": 5.0, "pid": 1, "supervisor": None}

    short = shown("workers", {"rows": [{**row, "last_error": "lost " * 40}, guest]})
    assert [" ".join(line.split())[:70] for line in short] == [
        "name state doing since pid restarts rss rows/s last-error",
        "worker-0 running running 1h05m 4711 3 1400MiB 81234 lost lost lost los",
        "guest - running 5s 1 - - - -",
    ]
    assert max(map(len, short)) == 120
    assert short[1].endswith("…")
    assert short[0].index("last-error") < 80, "what every worker has fits into 80 columns"
    assert [" ".join(line.split()) for line in shown("workers", {"rows": [row, guest]}, is_wide=True)] == [
        "name desired state doing since pid restarts next-try rss batch last-batch-seconds rows/s last-error",
        "worker-0 running running running 1h05m 4711 2 signal, 1 memory - 1400MiB 12 1.23 81234 lost\\nconnection",
        "guest - - running 5s 1 - - - - - - -",
    ]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, None), (0.9, "0s"), (59.9, "59s"), (60, "1m00s"), (3599, "59m59s"), (7500, "2h05m"), (100_000, "1d03h")],
)
def test_durations_have_two_units(seconds: float | None, text: str | None) -> None:
    assert duration(seconds) == text


def test_partitions_are_written_compactly() -> None:
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
