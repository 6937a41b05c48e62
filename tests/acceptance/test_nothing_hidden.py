"""The stored offset hides no message after a reset of the group, retention, or a gap."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kctl_agent.storage.block import Columns
from kctl_agent.storage.chunk import Chunk, GapRefused
from tests.acceptance.fleets import START_SECONDS, Fleet, MakeFleet
from tests.conftest import eventually
from tests.servers import kafka_tools, topics

pytestmark = pytest.mark.timeout(400)

ROOT = Path(__file__).parents[2]


def run_until_caught_up(fleet: Fleet) -> list[dict[str, Any]]:
    if fleet.pid is None:
        fleet.start()
    else:
        fleet.kctl("scale", "workers=1", "--wait")
    eventually(lambda: fleet.is_running("worker-0") and fleet.is_caught_up(), START_SECONDS, "all is committed")
    events = [event for event in fleet.events() if event["kind"] != "lost"]
    fleet.kctl("scale", "workers=0", "--wait")
    return events


def stored(fleet: Fleet, partition: int) -> list[int]:
    return [r.offset for block in fleet.storage.blocks() if block.partition == partition for r in block.messages()]


def reported(events: list[dict[str, Any]]) -> list[tuple[str, int, int, int]]:
    return sorted((event["kind"], event["partition"], event["from"], event["to"]) for event in events)


def test_a_reset_of_the_group_is_honoured_and_reported(make_fleet: MakeFleet) -> None:
    fleet = make_fleet(workers=1, partitions=2)
    where = (fleet.broker.bootstrap_servers, fleet.group, fleet.topic)
    fleet.send(200)
    assert run_until_caught_up(fleet) == []
    assert stored(fleet, 0) == stored(fleet, 1) == list(range(100))

    kafka_tools.reset_offsets(*where, 40)
    events = run_until_caught_up(fleet)
    assert reported(events) == [("rewound", 0, 100, 40), ("rewound", 1, 100, 40)]
    assert stored(fleet, 0) == stored(fleet, 1) == [*range(100), *range(40, 100)]

    fleet.send(100)
    kafka_tools.reset_offsets(*where, "latest")
    events = run_until_caught_up(fleet)
    assert reported(events) == [("skipped", 0, 100, 150), ("skipped", 1, 100, 150)]
    assert len(stored(fleet, 0)) == 160
    assert "offsets are skipped" in (fleet.directory / "logs" / "worker-0.log").read_text()


@pytest.mark.long
def test_records_lost_are_counted(make_fleet: MakeFleet, short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = short_dir / "go-on"
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
    monkeypatch.setenv("KCTL_SLOW_UNTIL", str(go_on))
    more = 'transform = "tests.acceptance.transforms:slow"\nmax_records_per_batch = 500'
    fleet = make_fleet(workers=1, partitions=1, workers_more=more)
    fleet.send(12_000, b"x" * 1000)  # more than the query's consumer prefetches
    fleet.start()
    eventually(
        lambda: fleet.is_running("worker-0") and fleet.workers()["worker-0"]["batch_running_seconds"] is not None,
        START_SECONDS,
        "the first batch is held",
    )

    topics.delete_records(fleet.broker.bootstrap_servers, fleet.topic, {0: 11_000})
    go_on.touch()
    eventually(fleet.is_caught_up, START_SECONDS, "all that is left is committed")

    [(kind, _, begin, end)] = reported([event for event in fleet.events() if event["kind"] == "records_lost"])
    assert (kind, end) == ("records_lost", 11_000)
    assert stored(fleet, 0) == [*range(begin), *range(11_000, 12_000)]


@pytest.mark.shows("records that retention removed are counted and reported")
@pytest.mark.long
def test_records_that_retention_removed_before_they_were_read_are_reported(make_fleet: MakeFleet) -> None:
    fleet = make_fleet(workers=1, partitions=2)
    fleet.send(200)
    run_until_caught_up(fleet)

    fleet.send(200)
    topics.delete_records(fleet.broker.bootstrap_servers, fleet.topic, {1: 170})
    events = run_until_caught_up(fleet)

    assert reported(events) == [("records_lost", 1, 100, 170)]
    assert "70 offsets" in events[0]["text"]
    assert stored(fleet, 0) == list(range(200))
    assert stored(fleet, 1) == [*range(100), *range(170, 200)]

    # This storage rejects a put whose range starts above this topic's own stored offset.
    stored_offset = fleet.storage.stored_offsets([(fleet.topic, 0)])[(fleet.topic, 0)]
    at = np.array([stored_offset.next + 5])
    columns = Columns(at, at, None, None, None)
    with (
        fleet.storage.writer() as writer,
        pytest.raises(GapRefused, match=f"above the stored offset {stored_offset.next}"),
    ):
        writer.put(
            Chunk(
                fleet.topic,
                0,
                stored_offset.topic_id,
                stored_offset.next + 5,
                stored_offset.next + 6,
                stored_offset.version,
                columns,
            )
        )
    assert stored(fleet, 0) == list(range(200))
