"""What the marks are told of the group's commits."""

from __future__ import annotations

from collections.abc import Mapping

from kafka import TopicPartition

from kctl_agent.storage.base import Mark, StorageUnusable
from kctl_agent.storage.memory import MemoryStorage
from kctl_agent.worker.commits import Commits

PLACE = TopicPartition("t", 0)


class Failing(MemoryStorage):
    """Cannot be written while `is_away`."""

    is_away = True

    def record_committed(self, committed: Mapping[tuple[str, int], int]) -> None:
        if self.is_away:
            raise StorageUnusable("away")
        super().record_committed(committed)


def test_a_commit_that_could_not_be_recorded_is_recorded_when_the_storage_can_be_used_again() -> None:
    storage = Failing()
    storage.place_marks([Mark("t", 0, "A", 100, None)])
    commits = Commits(storage)
    commits.done({PLACE: 60})

    commits.record()
    storage.is_away = False
    commits.record()

    assert storage.marks([("t", 0)])[("t", 0)].committed == 60
