"""With a full storage, workers take no new batch, stay in their group, report it, and continue when there is room."""

from __future__ import annotations

from contextlib import closing

import pytest

from kctl_agent.message import Message
from tests.acceptance.fleets import SETTLE_SECONDS, START_SECONDS, MakeFleet
from tests.conftest import eventually
from tests.servers import kafka_tools

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]


@pytest.mark.long
def test_a_full_storage_throttles_its_workers_until_there_is_room(make_fleet: MakeFleet) -> None:
    fleet = make_fleet(
        workers=1, partitions=1, storage="limit = 300", workers_more="max_records_per_batch = 100", trigger="1.0"
    )
    fleet.start("worker-0")

    fleet.send(1000)
    eventually(lambda: fleet.workers()["worker-0"]["state"] == "throttled", SETTLE_SECONDS, "the worker is throttled")

    def waits_in_kafka() -> bool:
        # Both are counted now and then, and a batch may have ended between the two counts.
        [row] = fleet.offsets().values()
        return bool(row["remaining_count"] == 1000 - fleet.rpc("block_size")["pending"])

    eventually(waits_in_kafka, SETTLE_SECONDS, "what waits in Kafka is still counted while nothing is read")
    held = fleet.rpc("block_size")
    assert 300 <= held["pending"] < 1000
    assert held["limit"] == 300
    state = kafka_tools.describe_state(fleet.broker.bootstrap_servers, fleet.group)
    assert (state.state, state.members) == ("Stable", 1)
    assert fleet.owners() == {"worker-0"}, "it keeps its partitions"

    def make_room() -> bool:
        if fleet.workers()["worker-0"]["state"] == "throttled":
            fleet.kctl("storage", "clear", "--yes")
        return fleet.is_caught_up()

    eventually(make_room, START_SECONDS, "everything is read, as room is made")


@pytest.mark.long
def test_too_many_dead_letters_throttle_the_workers_until_they_are_dealt_with(make_fleet: MakeFleet) -> None:
    fleet = make_fleet(workers=1, partitions=1, storage="dead_limit = 5")
    fleet.start("worker-0")
    letters = [Message("orders", 0, offset, None, b"v", 0) for offset in range(5)]

    with closing(fleet.open_storage()) as storage:
        storage.dead_letter(letters, "no")
    eventually(lambda: fleet.workers()["worker-0"]["state"] == "throttled", SETTLE_SECONDS, "the worker is throttled")

    fleet.send(100)
    row = fleet.workers()["worker-0"]
    assert "5 dead letters, and storage.dead_limit is 5" in row["last_error"]
    assert "throttled" in {event["kind"] for event in row["events"]}
    held = fleet.rpc("block_size")
    assert (held["pending"], held["dead"], held["dead_limit"]) == (0, 5, 5)
    assert held["full"] == row["last_error"]
    assert f"full: {held['full']}" in fleet.kctl("storage", "status").stdout

    fleet.kctl("storage", "dead", "delete", "--yes")
    eventually(fleet.is_caught_up, START_SECONDS, "everything is read, as there is room")
    assert fleet.rpc("block_size")["full"] is None
    assert fleet.workers()["worker-0"]["last_error"] is None
