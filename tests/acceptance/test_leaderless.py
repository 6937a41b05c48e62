"""A partition without a leader does not stop the others, and is read again when its leader returns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kafka import KafkaAdminClient

from tests.acceptance.fleets import SETTLE_SECONDS, Fleet, MakeFleet
from tests.conftest import eventually
from tests.servers.kafka_cluster import KafkaCluster, running_cluster

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(400),
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]


@pytest.fixture
def cluster() -> Iterator[KafkaCluster]:
    with running_cluster({"default.replication.factor": "1"}) as running:
        yield running


def test_a_partition_without_a_leader_holds_up_no_other(cluster: KafkaCluster, make_fleet: MakeFleet) -> None:
    fleet = make_fleet(workers=1, partitions=3, on=cluster)
    fleet.start("worker-0")
    fleet.send(300)
    eventually(fleet.is_caught_up, SETTLE_SECONDS, "everything is stored and committed")

    cluster.brokers[leaders(cluster, fleet.topic)[0]].kill()
    fleet.send_to(1, 2, count=100)
    eventually(lambda: fleet.has_committed(1, 2), 120, "the others are stored and committed")
    row = eventually(lambda: left_out(fleet), SETTLE_SECONDS, "it is reported")
    assert row["left_out"] == [{"topic": fleet.topic, "partition": 0, "why": "it has no leader"}]
    assert row["last_error"] == f"{fleet.topic}-0 is not read: it has no leader"
    assert [each["partition"] for each in row["events"] if each["kind"] == "partition_left_out"] == [0]
    fleet.send_to(1, 2, count=100)
    eventually(lambda: fleet.has_committed(1, 2), SETTLE_SECONDS, "they go on being read")

    cluster.start()
    fleet.send_to(0, count=100)
    eventually(fleet.is_caught_up, 120, "it is read again")
    eventually(lambda: fleet.workers()["worker-0"]["left_out"] == [], SETTLE_SECONDS, "nothing is left out")
    fleet.stored_once()


def leaders(cluster: KafkaCluster, topic: str) -> dict[int, int]:
    with KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
        [described] = admin.describe_topics([topic])
        return {each["partition_index"]: each["leader_id"] for each in described["partitions"]}


def left_out(fleet: Fleet) -> dict[str, Any] | None:
    row = fleet.workers().get("worker-0", {})
    return row if row.get("left_out") else None
