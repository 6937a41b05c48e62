"""Workers join, freeze and leave under load: no message is lost or stored twice, and all name one leader."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.acceptance.fleets import SETTLE_SECONDS, START_SECONDS, Fleet, MakeFleet
from tests.acceptance.stepping_worker import STEPS
from tests.conftest import eventually
from tests.servers import kafka_tools

pytestmark = pytest.mark.timeout(400)

SCRIPT = Path(__file__).with_name("stepping_worker.py")


def agree_on_a_leader(fleet: Fleet, members: int) -> bool:
    answer = fleet.ask("member_leader")
    if not answer or len(answer["members"]) != members:
        return False
    leaders = [member for member in answer["members"] if member["is_leader"]]
    return (
        len({member["generation"] for member in answer["members"]}) == 1
        and answer["leader"] is not None
        and [leader["member_id"] for leader in leaders] == [answer["leader"]]
    )


def queries_of_first(fleet: Fleet) -> int:
    return (fleet.directory / "logs" / "worker-0.log").read_text().count("kctl_agent.worker reads ")


def is_frozen(process: subprocess.Popen[bytes]) -> bool:
    assert process.poll() is None, "it has ended"
    return psutil.Process(process.pid).status() == psutil.STATUS_STOPPED


def thaw(process: subprocess.Popen[bytes]) -> None:
    for each in psutil.process_iter():
        try:
            if os.getsid(each.pid) == process.pid:
                each.resume()
        except (psutil.Error, ProcessLookupError):
            continue


def committed(fleet: Fleet) -> list[int]:
    return [row["current_offset"] or 0 for _, row in sorted(fleet.offsets().items())]


@contextmanager
def joining(fleet: Fleet, name: str, step: str) -> Iterator[subprocess.Popen[bytes]]:
    """A second worker that joins, freezes at this step for longer than its session, and is evicted. It continues and
    takes part again when this ends."""
    process = fleet.attach(name, (sys.executable, str(SCRIPT), step))
    try:
        eventually(lambda: is_frozen(process), START_SECONDS, f"{name} has come to the step: {step}")
        eventually(lambda: fleet.owners() == {"worker-0"}, START_SECONDS, "worker-0 reads everything")
        before = committed(fleet)
        eventually(lambda: all(now > then for then, now in zip(before, committed(fleet), strict=True)), START_SECONDS)
        yield process
    finally:
        thaw(process)
    eventually(lambda: fleet.owners() == {"worker-0", name}, START_SECONDS, f"{name} reads again")


Offsets = dict[int, tuple[int | None, int | None, int | None]]
"""partition -> committed, end, lag"""


def by_kafkas_tool(fleet: Fleet) -> Offsets:
    rows = kafka_tools.describe_group(fleet.broker.bootstrap_servers, fleet.group)
    return {row.partition: (row.current_offset, row.log_end_offset, row.lag) for row in rows}


def by_kctl(fleet: Fleet) -> Offsets:
    rows = fleet.rpc("offset_checker")["rows"]
    return {r["partition"]: (r["current_offset"], r["kafka_max_offset"], r["remaining_count"]) for r in rows}


def young_answer(fleet: Fleet, since: float) -> dict[int, dict[str, Any]] | None:
    """Our rows when every number in them was taken after `since`."""
    asked, rows = time.monotonic(), fleet.offsets()
    young = rows and all(row["age_seconds"] is not None and asked - row["age_seconds"] > since for row in rows.values())
    return rows if young else None


def lie_between_two_readings_of_kafkas_tool(fleet: Fleet) -> None:
    """For use while a producer runs."""
    before = by_kafkas_tool(fleet)
    read_at = time.monotonic()
    ours = eventually(lambda: young_answer(fleet, read_at), SETTLE_SECONDS)
    after = by_kafkas_tool(fleet)
    for partition, row in ours.items():
        for i, number in enumerate((row["current_offset"], row["kafka_max_offset"])):
            low, high = before[partition][i], after[partition][i]
            assert low is not None
            assert high is not None
            assert low <= number <= high, f"partition {partition}: {low} <= {number} <= {high}"


def shows_what_kafkas_tool_shows(fleet: Fleet, members: int) -> None:
    """For a quiet topic: its offsets, and the members with their partitions."""
    expected = by_kafkas_tool(fleet)
    assert sorted(expected) == list(range(fleet.partitions))
    eventually(lambda: by_kctl(fleet) == expected, what="the workers have polled since")
    described = kafka_tools.describe_members(fleet.broker.bootstrap_servers, fleet.group)
    theirs = {(member.consumer_id, partition) for member in described for _, partition in member.assignment}
    answer = fleet.rpc("member_leader")["members"]
    assert {(member["member_id"], tp["partition"]) for member in answer for tp in member["partitions"]} == theirs
    assert len({member for member, _ in theirs}) == members


@pytest.mark.shows("the offsets, lag and members shown are those of Kafka's own tool, under load and at rest")
@pytest.mark.shows("a worker frozen for longer than its session, while another takes over, stores no message twice")
@pytest.mark.parametrize("assignor", [pytest.param("range", marks=pytest.mark.long), "cooperative-sticky"])
def test_none_lost_as_workers_come_and_go(assignor: str, make_fleet: MakeFleet) -> None:
    # A killed worker stays away for longer than its session, so that its successor misses the rebalance.
    fleet = make_fleet(workers=1, partitions=4, backoff="25", kafka=f'assignor = "{assignor}"')
    fleet.start("worker-0")
    load = fleet.load(rate=1000)
    eventually(lambda: fleet.owners() == {"worker-0"}, START_SECONDS, "the first worker has everything")
    eventually(lambda: agree_on_a_leader(fleet, 1), SETTLE_SECONDS, "one member, its own leader")

    with joining(fleet, "worker-1", "the committed offsets are read"):
        before = queries_of_first(fleet)
    eventually(lambda: agree_on_a_leader(fleet, 2), SETTLE_SECONDS, "two members, one leader")
    if assignor == "cooperative-sticky":
        eventually(lambda: queries_of_first(fleet) > before, SETTLE_SECONDS, "what stays is read on")
        assert queries_of_first(fleet) == before + 1, "what stays was interrupted by more than one query restart"

    first = fleet.workers()["worker-0"]["pid"]
    os.kill(first, signal.SIGKILL)
    eventually(lambda: fleet.owners() == {"worker-1"}, SETTLE_SECONDS, "the survivor takes over")
    eventually(lambda: fleet.owners() == {"worker-0", "worker-1"}, START_SECONDS, "the killed one came back")
    eventually(lambda: agree_on_a_leader(fleet, 2), SETTLE_SECONDS, "two members, one leader again")
    assert fleet.workers()["worker-0"]["pid"] != first
    lie_between_two_readings_of_kafkas_tool(fleet)

    fleet.finish(load)
    eventually(fleet.is_caught_up, SETTLE_SECONDS, "all is committed")
    shows_what_kafkas_tool_shows(fleet, members=2)
    assert fleet.stored_once() > 10_000


@pytest.mark.shows("a worker frozen at any step of a query's start or of a batch loses and doubles no message")
@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_worker_frozen_at_any_step_loses_nothing_and_stores_nothing_twice(make_fleet: MakeFleet) -> None:
    fleet = make_fleet(workers=1, partitions=2)
    fleet.start("worker-0")
    load = fleet.load(500)

    for number, step in enumerate(STEPS):
        with joining(fleet, f"frozen-{number}", step) as process:
            pass
        assert process.stdin is not None
        process.stdin.close()
        process.wait(SETTLE_SECONDS)
        eventually(lambda: fleet.owners() == {"worker-0"}, START_SECONDS, f"frozen-{number} has left")

    fleet.finish(load)
    eventually(fleet.is_caught_up, START_SECONDS, "all is committed")
    fleet.stored_once()
