"""Operations on a real worker, resets of its group, retention and long batches lose and double no message."""

import json
import os
import signal
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kctl.rpc.client import call
from kctl_agent.rpc.messages import Request, Role, wire_method
from tests.acceptance.fleets import SETTLE_SECONDS, START_SECONDS, Fleet, MakeFleet
from tests.conftest import eventually
from tests.servers import kafka_tools, topics

pytestmark = pytest.mark.timeout(400)

CALLS = 1000
HOLD = """
import os, time

def hold(frame):
    def held(batches):
        for batch in batches:
            while os.path.exists({place!r}):
                time.sleep(0.05)
            yield batch
    return frame.mapInArrow(held, frame.schema)
"""


@pytest.fixture(autouse=True)
def nothing_left_behind() -> None:
    """The fleet outlives a test here."""


@pytest.fixture(scope="module")
def fleet(make_shared_fleet: MakeFleet) -> Fleet:
    more = 'transform = "holding:hold"\nmax_records_per_batch = 500'
    fleet = make_shared_fleet(workers=1, partitions=2, workers_more=more)
    (fleet.directory / "holding.py").write_text(HOLD.format(place=str(fleet.directory / "hold")))
    fleet.start("worker-0")
    return fleet


class Bench:
    """Counts offsets from the test's begin, which is the same in both partitions."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        [self.begin] = set(fleet.sent.values()) or {0}
        fleet.kctl("start", "worker-0")
        self.await_caught_up()
        fleet.kctl("storage", "clear", "--yes")

    @contextmanager
    def holding(self) -> Iterator[None]:
        """No batch ends within it."""
        place = self.fleet.directory / "hold"
        place.touch()
        try:
            yield
        finally:
            place.unlink()

    def await_caught_up(self) -> None:
        ready = lambda: self.fleet.is_running("worker-0") and self.fleet.is_caught_up()  # noqa: E731
        eventually(ready, START_SECONDS, "all is committed")

    def await_committed(self, partition: int, offset: int) -> None:
        at = self.begin + offset
        rows = self.fleet.offsets
        eventually(lambda: rows()[partition]["current_offset"] == at, SETTLE_SECONDS, f"{partition} is read")

    def stored(self, partition: int) -> list[int]:
        blocks = [block for block in self.fleet.storage.blocks() if block.partition == partition]
        return [record.offset - self.begin for block in blocks for record in block.messages()]

    def events(self) -> list[tuple[str, int, int, int]]:
        """Kind, partition, old and new offset of each event that moved a position."""
        found = [each for each in self.fleet.events() if each["partition"] is not None and each["kind"] != "lost"]
        moves = [
            (each["kind"], each["partition"], each["from"] - self.begin, each["to"] - self.begin) for each in found
        ]
        return [each for each in moves if each[2] >= 0]


@pytest.fixture
def bench(fleet: Fleet) -> Bench:
    return Bench(fleet)


def operation(fleet: Fleet, *words: str) -> dict[str, Any]:
    reported: dict[str, Any] = json.loads(fleet.kctl(*words, "-o", "json").stdout)
    assert reported["state"] == "done", reported
    return reported


@pytest.mark.shows("a real worker under operations loses no message, stores none twice, and reads none while paused")
def test_pause_seek_stack_and_drain_of_a_real_worker(bench: Bench) -> None:
    fleet = bench.fleet
    fleet.send(200)
    bench.await_caught_up()

    # Paused: only the other partition is read, also by the next process of that name.
    operation(fleet, "pause", "--topic", fleet.topic, "--partition", "1")
    fleet.send(100)
    bench.await_committed(0, 150)
    assert fleet.offsets()[1]["current_offset"] == bench.begin + 100
    assert fleet.owners() == {"worker-0"}, "it keeps the paused partition"
    os.kill(fleet.workers()["worker-0"]["pid"], signal.SIGKILL)
    eventually(lambda: fleet.is_running("worker-0"), START_SECONDS, "a new process runs")
    fleet.send(100)
    bench.await_committed(0, 200)
    assert (len(bench.stored(0)), len(bench.stored(1))) == (200, 100)
    assert "is paused by" in fleet.kctl("status", exit_code=None).stdout
    operation(fleet, "resume", "--all")
    bench.await_caught_up()
    assert bench.stored(1) == list(range(200))

    # Seek: the group and the stored offset move together, back and forward.
    to = str(bench.begin + 150)
    planned = operation(fleet, "seek", "--topic", fleet.topic, "--to", to, "--dry-run")
    assert "50 offsets are handled again" in planned["text"]
    assert len(bench.stored(0)) == 200
    operation(fleet, "seek", "--topic", fleet.topic, "--partition", "0", "--to", to, "--yes")
    eventually(lambda: len(bench.stored(0)) == 250 and fleet.is_caught_up(), SETTLE_SECONDS, "read again")
    assert bench.stored(0) == [*range(200), *range(150, 200)]
    operation(fleet, "pause", "--all")
    fleet.send(100)
    operation(fleet, "seek", "--topic", fleet.topic, "--to", "latest", "--yes")
    rows = kafka_tools.describe_group(fleet.broker.bootstrap_servers, fleet.group)
    assert {(row.current_offset, row.lag) for row in rows} == {(bench.begin + 250, 0)}, "Kafka's own tool sees it"
    operation(fleet, "resume", "--all")
    fleet.send(20)
    bench.await_caught_up()
    assert bench.stored(1) == [*range(200), *range(250, 260)]
    assert [each[:2] for each in bench.events()] == [("rewound", 0), ("skipped", 0), ("skipped", 1)]

    # Stack: where a worker stands, with its JVM.
    stacks = operation(fleet, "stack", "worker-0")["result"]
    assert {"MainThread", "kctl-agent worker-0"} <= {each["thread"] for each in stacks["threads"]}
    jvms = operation(fleet, "stack", "engine" if fleet.has_engine else "worker-0")["result"]["jvms"]
    assert all("stream execution thread" in jvm["stack"] for jvm in jvms if "stack" in jvm)
    assert len(jvms) == 1

    # Drained: all of it is committed, and it has left the group.
    operation(fleet, "drain", "worker-0", "--wait")
    state = kafka_tools.describe_state(fleet.broker.bootstrap_servers, fleet.group)
    assert (state.state, state.members) == ("Empty", 0)
    eventually(fleet.is_caught_up, SETTLE_SECONDS, "the brokers' own offsets, now that nobody else reports any")


@pytest.mark.shows("the stored offset hides no message after a reset of the group: both are reported")
def test_a_reset_of_the_group_is_honoured_and_reported(bench: Bench) -> None:
    fleet = bench.fleet
    where = (fleet.broker.bootstrap_servers, fleet.group, fleet.topic)
    fleet.send(200)
    bench.await_caught_up()

    fleet.kctl("scale", "workers=0", "--wait")
    kafka_tools.reset_offsets(*where, bench.begin + 40)
    fleet.kctl("scale", "workers=1", "--wait")
    bench.await_caught_up()
    assert sorted(bench.events()) == [("rewound", 0, 100, 40), ("rewound", 1, 100, 40)]
    assert bench.stored(0) == bench.stored(1) == [*range(100), *range(40, 100)]

    fleet.kctl("scale", "workers=0", "--wait")
    fleet.send(100)
    kafka_tools.reset_offsets(*where, "latest")
    fleet.kctl("scale", "workers=1", "--wait")
    bench.await_caught_up()
    assert sorted(bench.events()) == [("skipped", 0, 100, 150), ("skipped", 1, 100, 150)]
    assert len(bench.stored(0)) == 160
    assert "offsets are skipped" in (fleet.directory / "logs" / "worker-0.log").read_text()


@pytest.mark.shows("records that retention removed are counted and reported")
@pytest.mark.long
def test_records_removed_between_batches_of_a_query_are_counted(bench: Bench) -> None:
    fleet = bench.fleet
    with bench.holding():
        fleet.send(24_000, b"x" * 1000)  # more than the query's consumer prefetches
        eventually(lambda: running_batch(fleet), START_SECONDS, "the first batch is held")
        topics.delete_records(fleet.broker.bootstrap_servers, fleet.topic, {0: bench.begin + 11_000})
    bench.await_caught_up()

    [(kind, partition, lost_from, to)] = bench.events()
    assert (kind, partition, to) == ("records_lost", 0, 11_000)
    assert bench.stored(0) == [*range(lost_from), *range(11_000, 12_000)]
    assert bench.stored(1) == list(range(12_000))


def running_batch(fleet: Fleet) -> float:
    return float(fleet.workers().get("worker-0", {}).get("batch_running_seconds") or 0.0)


def total_lag(fleet: Fleet) -> int:
    answer = fleet.ask("kafka_lag")
    return int(answer["total"] or 0) if answer else 0


def call_times(fleet: Fleet) -> list[float]:
    agent, times = fleet.directory / "run" / "worker-0.sock", []
    for _ in range(CALLS):
        began = time.perf_counter()
        assert call(agent, Request(Role.MASTER, "offset_checker", wire_method("offset_checker")), 10.0).ok
        times.append(time.perf_counter() - began)
    return times


@pytest.mark.shows("during a long batch the agent answers at once, and the lag grows")
def test_the_agent_answers_in_a_batch(bench: Bench) -> None:
    fleet = bench.fleet
    with bench.holding():
        fleet.send(100)
        eventually(lambda: running_batch(fleet) > 1, START_SECONDS, "a batch is being held")
        done = fleet.workers()["worker-0"]["batches_total"]

        first = total_lag(fleet)
        fleet.send(300)
        eventually(lambda: total_lag(fleet) >= first + 300, what="the lag grows by what was produced")
        times = sorted(call_times(fleet))
        began = time.monotonic()
        shown = fleet.kctl("rpc", "offset_checker", exit_code=None)
        seconds = time.monotonic() - began

        still = fleet.workers()["worker-0"]
    assert still["batch_running_seconds"] is not None, "all of this happened inside one batch"
    assert still["batches_total"] == done
    assert seconds < 2, "the command line answers at once"
    assert str(fleet.topic) in shown.stdout
    p99 = times[int(CALLS * 0.99)]
    print(f"agent calls during a batch: p50 {statistics.median(times) * 1e3:.3f} ms, p99 {p99 * 1e3:.3f} ms")
    # `benchmarks/agent_under_load.py` measures the time: on a busy machine a call waits for a processor.
    assert (statistics.median(times) < 0.05, p99 < 1) == (True, True), "nobody waits for the batch"
    bench.await_caught_up()
    assert bench.stored(0) == bench.stored(1) == list(range(200)), "the held batch and what came after it"
