"""What is due to be committed, and what the broker has refused before."""

from __future__ import annotations

from kafka import TopicPartition

from kctl_agent.worker.consumer_group.commits import Commits

GOOD, BAD = TopicPartition("orders", 0), TopicPartition("payments", 0)


def test_what_is_refused_does_not_keep_the_others_from_being_known_as_committed() -> None:
    commits = Commits()
    commits.answered({GOOD: 10, BAD: 20}, [BAD], now=100.0)

    assert commits.known == {GOOD: 10}
    assert commits.due({GOOD: 10, BAD: 20}) == {BAD: 20}
    assert commits.is_refused


def test_what_is_refused_again_and_again_is_tried_more_and_more_seldom() -> None:
    commits, now, pauses = Commits(), 100.0, []
    for _ in range(6):
        commits.answered({BAD: 20}, [BAD], now)
        pause = next(s for s in (0.5, 1, 2, 5, 10, 60) if BAD not in commits.waiting([BAD], now + s))
        pauses.append(pause)
        now += pause

    assert pauses == [1, 2, 5, 10, 10, 10]


def test_a_commit_that_is_taken_ends_the_refusal() -> None:
    commits = Commits()
    commits.answered({BAD: 20}, [BAD], now=100.0)
    commits.answered({GOOD: 10}, [], now=100.5)
    assert commits.is_refused

    commits.answered({BAD: 20}, [], now=101.0)
    assert not commits.is_refused
    assert not commits.waiting([BAD], 101.0)


def test_a_partition_that_goes_to_another_worker_takes_its_refusal_along() -> None:
    commits = Commits()
    commits.answered({BAD: 20}, [BAD], now=100.0)

    assert not commits.waiting([GOOD], 100.0)
    assert not commits.is_refused
