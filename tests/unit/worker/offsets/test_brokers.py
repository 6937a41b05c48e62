"""What the brokers report of topics."""

from __future__ import annotations

from kafka.errors import LeaderNotAvailableError, UnknownTopicOrPartitionError

from kctl_agent.worker.offsets.brokers import Topics


def test_an_error_of_a_topic_leaves_its_id_and_a_topic_that_is_gone_has_none() -> None:
    before = {"orders": "A", "invoices": "B", "gone": "C", "recreated": "D"}
    errors = {"invoices": LeaderNotAvailableError, "gone": UnknownTopicOrPartitionError}

    topics = Topics((), {"orders": "A", "recreated": "E"}, errors)

    assert topics.ids_since(before) == {"orders": "A", "invoices": "B", "recreated": "E"}
