from __future__ import annotations

from kafka import TopicPartition

from kctl_agent.worker.consumer_group.commits import Commits

GOOD, BAD = TopicPartition("orders", 0), TopicPartition("payments", 0)


def test_a_commit_that_is_rejected_repeatedly_is_tried_less_and_less_often() -> None:
    commits, now, pauses = Commits(), 100.0, []
    for _ in range(6):
        commits.answered({BAD: 20}, [BAD], now)
        pause = next(s for s in (0.5, 1, 2, 5, 10, 60) if BAD not in commits.waiting([BAD], now + s))
        pauses.append(pause)
        now += pause

    assert pauses == [1, 2, 5, 10, 10, 10]
