"""Operations on real workers under load lose no message, store none twice, and read none while paused."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import pytest

from tests.acceptance.fleets import SETTLE_SECONDS, START_SECONDS, Fleet, MakeFleet
from tests.conftest import eventually
from tests.servers import kafka_tools

pytestmark = pytest.mark.timeout(400)


def stored(fleet: Fleet, partition: int) -> list[int]:
    return [r.offset for block in fleet.storage.blocks() if block.partition == partition for r in block.messages()]


def operation(fleet: Fleet, *words: str) -> dict[str, Any]:
    reported: dict[str, Any] = json.loads(fleet.kctl(*words, "-o", "json").stdout)
    assert reported["state"] == "done", reported
    return reported


def test_pause_seek_stack_and_drain_of_a_real_worker(make_fleet: MakeFleet) -> None:
    fleet = make_fleet(workers=1, partitions=2)
    fleet.start("worker-0")
    fleet.send(200)
    eventually(fleet.is_caught_up, SETTLE_SECONDS, "all is committed")

    # Paused: only the other partition is read, also by the next process of that name.
    operation(fleet, "pause", "--topic", fleet.topic, "--partition", "1")
    fleet.send(100)
    eventually(lambda: fleet.offsets()[0]["current_offset"] == 150, SETTLE_SECONDS, "the other partition is read")
    assert fleet.offsets()[1]["current_offset"] == 100
    assert fleet.owners() == {"worker-0"}, "it keeps the paused partition"
    os.kill(fleet.workers()["worker-0"]["pid"], signal.SIGKILL)
    eventually(lambda: fleet.is_running("worker-0"), START_SECONDS, "a new process runs")
    fleet.send(100)
    eventually(lambda: fleet.offsets()[0]["current_offset"] == 200, SETTLE_SECONDS, "the other partition is read")
    assert (len(stored(fleet, 0)), len(stored(fleet, 1))) == (200, 100)
    assert "is paused by" in fleet.kctl("status", exit_code=None).stdout
    operation(fleet, "resume", "--all")
    eventually(fleet.is_caught_up, SETTLE_SECONDS, "what was paused is read")
    assert stored(fleet, 1) == list(range(200))

    # Seek: the group and the stored offset move together, back and forward.
    planned = operation(fleet, "seek", "--topic", fleet.topic, "--to", "150", "--dry-run")
    assert "50 offsets are handled again" in planned["text"]
    assert len(stored(fleet, 0)) == 200
    operation(fleet, "seek", "--topic", fleet.topic, "--partition", "0", "--to", "150", "--yes")
    eventually(lambda: len(stored(fleet, 0)) == 250 and fleet.is_caught_up(), SETTLE_SECONDS, "read again")
    assert stored(fleet, 0) == [*range(200), *range(150, 200)]
    operation(fleet, "pause", "--all")
    fleet.send(100)
    operation(fleet, "seek", "--topic", fleet.topic, "--to", "latest", "--yes")
    rows = kafka_tools.describe_group(fleet.broker.bootstrap_servers, fleet.group)
    assert {(row.current_offset, row.lag) for row in rows} == {(250, 0)}, "Kafka's own tool sees the new offsets"
    operation(fleet, "resume", "--all")
    fleet.send(20)
    eventually(fleet.is_caught_up, SETTLE_SECONDS, "it goes on from there")
    assert stored(fleet, 1) == [*range(200), *range(250, 260)]
    kinds = [(event["kind"], event["partition"]) for event in fleet.events() if event["kind"] in ("rewound", "skipped")]
    assert kinds == [("rewound", 0), ("skipped", 0), ("skipped", 1)]

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
