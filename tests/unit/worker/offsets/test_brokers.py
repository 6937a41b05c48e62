from __future__ import annotations

from typing import Any

import pytest
from kafka.errors import KafkaTimeoutError, LeaderNotAvailableError, UnknownTopicOrPartitionError

from kctl_agent.worker.offsets.brokers import BrokerWatcher, Topics
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
