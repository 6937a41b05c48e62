"""A cluster of three brokers that loses its leaders, coordinator and controller, whose topic grows, is made again and
is truncated, while real workers read it: nothing that was acknowledged is lost, and what a retry heals is no error."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kctl.demo.cluster import KafkaCluster
from tests.acceptance.fleets import SETTLE_SECONDS, Eventually, Fleet
from tests.acceptance.scenes import Scene

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(400),
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]


@pytest.fixture
def cluster() -> Iterator[KafkaCluster]:
    folder = Path(tempfile.mkdtemp(prefix="b", dir="/tmp"))
    try:
        with KafkaCluster(folder, properties={"min.insync.replicas": "2"}) as running:
            yield running
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def scene(cluster: KafkaCluster, make_fleet: Callable[..., Fleet], eventually: Eventually) -> Scene:
    return Scene(cluster, make_fleet, eventually)


def test_a_killed_leader_costs_no_message_and_new_partitions_are_read(scene: Scene) -> None:
    scene.kill_leader()
    scene.grow(5)
    scene.settle()

    found = scene.fleet.audit()
    assert (found.lost, found.duplicated) == (0, 0)
    assert found.stored == found.produced > 1000
    assert scene.errors() == []


@pytest.mark.long
def test_whoever_of_the_cluster_is_killed_no_message_is_lost_and_no_error_is_shown(scene: Scene) -> None:
    scene.kill_coordinator()
    scene.kill_controller()
    scene.kill_leader()
    scene.settle()

    found = scene.fleet.audit()
    assert (found.lost, found.duplicated) == (0, 0)
    assert found.stored == found.produced > 1000
    assert scene.errors() == []


@pytest.mark.long
def test_a_topic_that_is_made_again_and_then_truncated_is_read_on_and_both_are_told(
    scene: Scene, eventually: Eventually
) -> None:
    fleet = scene.fleet
    pair, partitions = [1, 2], {0: [1, 2], 1: [2, 1]}
    scene.make_again(partitions, min_insync_replicas="1", unclean_leader_election_enable="true")
    fleet.send(20, b"of the second topic")
    seen: set[int] = set()

    def is_caught_up() -> bool:
        seen.update(
            offset
            for row in fleet.offsets().values()
            for offset in (row["current_offset"], row["kafka_max_offset"])
            if offset is not None
        )
        return fleet.is_caught_up()

    eventually(is_caught_up, SETTLE_SECONDS, "the second topic is read")
    assert max(seen) <= 10, "an offset of the first topic was shown"
    assert values(fleet).count(b"of the second topic") == 20
    assert "topic_recreated" in scene.kinds()

    follower, leader = pair
    scene.cluster.brokers[follower].kill()
    eventually(
        lambda: set(map(frozenset, scene.isr().values())) == {frozenset([leader])}, SETTLE_SECONDS, "one is left"
    )
    fleet.send(20, b"that only one broker has")
    eventually(fleet.is_caught_up, SETTLE_SECONDS, "it is read")
    scene.cluster.brokers[leader].kill()
    scene.cluster.brokers[follower].start()
    eventually(lambda: "truncated" in scene.kinds(), SETTLE_SECONDS, "the truncation is told")
    for tp in fleet.sent:
        fleet.sent[tp] = 10
    fleet.send(30, b"after the truncation")
    eventually(fleet.is_caught_up, SETTLE_SECONDS, "what came after is read")
    assert values(fleet).count(b"after the truncation") == 30
    assert values(fleet).count(b"that only one broker has") == 20
    scene.restart()


def values(fleet: Fleet) -> list[bytes | None]:
    """Of all messages that are stored."""
    return [record.value for block in fleet.storage.blocks() for record in block.records()]
