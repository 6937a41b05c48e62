from __future__ import annotations

from typing import Any

import pytest
from kafka import TopicPartition
from kafka.errors import KafkaTimeoutError, LeaderNotAvailableError, UnknownTopicOrPartitionError

from kctl_agent.worker.offsets.brokers import BrokerView, BrokerWatcher, Topics
from kctl_agent.worker.offsets.progress import Reading
from tests.conftest import eventually


@pytest.mark.shows("with `latest`, added partitions are read from their start")
def test_an_error_of_a_topic_leaves_its_id_and_a_topic_that_is_gone_has_none() -> None:
    before = {"orders": "A", "invoices": "B", "gone": "C", "recreated": "D"}
    errors = {"invoices": LeaderNotAvailableError, "gone": UnknownTopicOrPartitionError}

    topics = Topics((), {"orders": "A", "recreated": "E"}, errors)

    assert topics.ids_since(before) == {"orders": "A", "invoices": "B", "recreated": "E"}


class Answering:
    error: Exception | None = None

    def topics(self) -> Topics:
        if self.error is not None:
            raise self.error
        return Topics((), {}, {})

    def brokers(self) -> tuple[()]:
        return ()

    def describe(self, error: Exception, what: str) -> str:
        return f"{what}: {error}"


@pytest.mark.parametrize("error", [KafkaTimeoutError("no answer"), ValueError("no such field")])
def test_whatever_the_brokers_answers_raise_is_reported_and_they_are_asked_again(error: Exception) -> None:
    brokers: Any = Answering()
    brokers.error = error
    reported: list[str | None] = []
    watcher = BrokerWatcher(brokers, lambda: (), reported.append, every_seconds=0.001)
    watcher.start()
    try:
        eventually(lambda: len(reported) > 2)
        assert str(error) in (reported[-1] or "")
        brokers.error = None
        eventually(lambda: reported[-1] is None)
        assert watcher.view.taken_at is not None
    finally:
        watcher.stop()
        watcher.join()


FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)


def reading() -> Reading:
    began = Reading()
    began.began({FIRST: "A", SECOND: "A"}, 100.0)
    return began


def view(topic_id: str | None) -> BrokerView:
    return BrokerView({FIRST: 0}, {}, 101.0, topic_ids={} if topic_id is None else {"orders": topic_id})


@pytest.mark.parametrize(
    ("topic_id", "is_void", "is_recreated"), [("A", False, False), ("B", True, True), (None, True, False)]
)
def test_a_recreated_or_deleted_topic_is_void(topic_id: str | None, is_void: bool, is_recreated: bool) -> None:
    unknown = Reading()
    unknown.began({FIRST: None}, 100.0)

    assert reading().is_void(FIRST, view(topic_id)) == is_void
    assert reading().is_recreated([FIRST], view(topic_id)) == is_recreated
    assert not unknown.is_void(FIRST, view(topic_id))
    assert not unknown.is_void(SECOND, view(topic_id)), "it was never read"


def test_a_partition_that_is_read_is_without_leader_after_so_long() -> None:
    without = BrokerView(taken_at=130.0, unanswered_since={FIRST: 110.0})
    before_reading_began = BrokerView(taken_at=99.0, topic_ids={"orders": "B"}, unanswered_since={FIRST: 10.0})

    for each in (before_reading_began, BrokerView()):
        assert not reading().is_void(FIRST, each)
        assert not reading().is_without_leader([FIRST], each, 15.0)
    assert reading().is_without_leader([FIRST], without, 15.0)
    assert not reading().is_without_leader([FIRST], without, 30.0)
    assert not reading().is_without_leader([SECOND], without, 15.0)
