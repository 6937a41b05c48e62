"""Members of a real consumer group, without Spark: every assignor, the leader's note, static membership."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kafka import TopicPartition

from kctl.demo import topics
from kctl.demo.broker import KafkaBroker
from kctl_agent.worker.membership import Membership
from kctl_agent.worker.settings import KafkaSettings

pytestmark = [pytest.mark.real, pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")]

PARTITIONS = 6


class Member:
    """A membership and the thread that polls it, as a worker's main thread does."""

    def __init__(self, settings: KafkaSettings, name: str) -> None:
        self.revocations = 0
        self.membership = Membership(settings, name, self._revoked, lambda: None, lambda _offsets: None)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"member-{name}")
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join(30)

    def _revoked(self, partitions: set[TopicPartition]) -> dict[TopicPartition, int]:
        self.revocations += bool(partitions)
        return {}

    def _run(self) -> None:
        while not self._stop.is_set():
            self.membership.poll(0.05)
        self.membership.close()


@pytest.fixture
def join(broker: KafkaBroker) -> Iterator[Callable[..., Member]]:
    group = f"m{uuid.uuid4().hex[:8]}"
    topics.create_topic(broker.bootstrap_servers, group, PARTITIONS)
    members: list[Member] = []

    def make(name: str, assignor: str = "range", instance: str | None = None) -> Member:
        settings = KafkaSettings(
            bootstrap_servers=broker.bootstrap_servers,
            group=group,
            topics=(group,),
            auto_offset_reset="earliest",
            assignor=assignor,
            session_timeout_seconds=6.0,
            heartbeat_interval_seconds=0.2,
            isolation_level="read_uncommitted",
            group_instance_id=instance,
        )
        members.append(Member(settings, name))
        return members[-1]

    yield make
    for member in members:
        member.close()


def shared(members: list[Member], each: int) -> bool:
    """Every partition has one reader, and all members name one of them as the leader of one generation."""
    figures = [member.membership.figures for member in members]
    shares = [member.membership.partitions for member in members]
    leaders = {figure.leader for figure in figures}
    return (
        all(len(share) == each for share in shares)
        and len(frozenset().union(*shares)) == PARTITIONS
        and len({figure.generation for figure in figures}) == 1
        and len(leaders) == 1
        and leaders <= {figure.member_id for figure in figures} - {None}
    )


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "sticky", "cooperative-sticky"])
def test_three_members_share_everything_and_name_one_leader(
    assignor: str, join: Callable[..., Member], eventually: Callable[..., Any]
) -> None:
    members = [join(name, assignor) for name in ("a", "b", "c")]
    eventually(lambda: shared(members, 2), 60, "two partitions each")

    members.pop().close()
    eventually(lambda: shared(members, 3), 60, "the two that stay share what the third gave back")


def test_a_static_member_that_restarts_causes_no_rebalance(
    join: Callable[..., Member], eventually: Callable[..., Any]
) -> None:
    stays, restarts = join("a", instance="one"), join("b", instance="two")
    eventually(lambda: shared([stays, restarts], 3), 60, "both have joined")
    generation, revocations = stays.membership.figures.generation, stays.revocations

    restarts.close()
    again = join("b", instance="two")

    eventually(lambda: len(again.membership.partitions) == 3, 60, "it has its partitions again")
    assert stays.membership.figures.generation == generation
    assert stays.revocations == revocations
