from __future__ import annotations

from kafka import TopicPartition

from kctl_agent.worker.consumer_group.commits import Commits

GOOD, BAD = TopicPartition("orders", 0), TopicPartition("payments", 0)


def test_what_is_refused_again_and_again_is_tried_more_and_more_seldom() -> None:
    commits, now, pauses = Commits(), 100.0, []
    for _ in range(6):
        commits.answered({BAD: 20}, [BAD], now)
        pause = next(s for s in (0.5, 1, 2, 5, 10, 60) if BAD not in commits.waiting([BAD], now + s))
        pauses.append(pause)
        now += pause

    assert pauses == [1, 2, 5, 10, 10, 10]
