from __future__ import annotations

from kafka import TopicPartition

from kctl_agent.worker.offsets.brokers import BrokerView, Unanswered
from kctl_agent.worker.offsets.progress import Reading

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)


def reading(now: float = 100.0) -> Reading:
    began = Reading()
    began.began({FIRST: "A", SECOND: "A"}, now)
    return began


def view(topic_id: str | None = "A", taken_at: float | None = 101.0, **starts: int) -> BrokerView:
    ids = {} if topic_id is None else {"orders": topic_id}
    return BrokerView({FIRST: starts.get("first", 0)}, {}, taken_at, topic_ids=ids)


def test_a_recreated_topic_is_void_and_known_as_recreated() -> None:
    assert not reading().is_void(FIRST, view())
    assert reading().is_void(FIRST, view("B"))
    assert reading().is_recreated([FIRST], view("B"))


def test_a_deleted_topic_is_void_and_not_recreated() -> None:
    assert reading().is_void(FIRST, view(None))
    assert not reading().is_recreated([FIRST], view(None))


def test_what_the_brokers_reported_before_reading_began_means_nothing() -> None:
    late = Unanswered("no leader", since=10.0)
    before = BrokerView(taken_at=99.0, topic_ids={"orders": "B"}, unanswered={FIRST: late})

    for each in (before, BrokerView()):
        assert not reading().is_void(FIRST, each)
        assert not reading().is_without_leader([FIRST], each, 15.0)


def test_a_topic_without_a_known_id_is_never_void() -> None:
    unknown = Reading()
    unknown.began({FIRST: None}, 100.0)

    assert not unknown.is_void(FIRST, view("B"))
    assert not unknown.is_void(SECOND, view("B")), "it was never read"


def test_a_partition_that_is_read_is_without_leader_after_so_long() -> None:
    without = BrokerView(taken_at=130.0, unanswered={FIRST: Unanswered("no leader", since=110.0)})

    assert reading().is_without_leader([FIRST], without, 15.0)
    assert not reading().is_without_leader([FIRST], without, 30.0)
    assert not reading().is_without_leader([SECOND], without, 15.0)
