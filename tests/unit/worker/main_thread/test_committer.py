from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from kafka import TopicPartition
from kafka.errors import CoordinatorLoadInProgressError, TopicAuthorizationFailedError

from kctl_agent.worker.consumer_group.membership import Membership
from kctl_agent.worker.main_thread.main_loop import Committer
from kctl_agent.worker.offsets.commit_metadata import LogSeen
from kctl_agent.worker.offsets.progress import ReadProgress
from tests.servers.scripted_broker import ScriptedBroker
from tests.unit.worker.consumer_group.coordinator import (
    ORDERS_0,
    ORDERS_1,
    PAYMENTS_0,
    committed,
    rejected,
    scripted_group,
)
from tests.unit.worker.main_thread.played_stats import PlayedStats

POSITIONS = {ORDERS_0: 10, ORDERS_1: 20, PAYMENTS_0: 30}
DENIED = committed({"payments": TopicAuthorizationFailedError.errno})


class Commits:
    def __init__(self, broker: ScriptedBroker, member: Membership) -> None:
        self._broker = broker
        self.progress = ReadProgress()
        stats: Any = PlayedStats()
        self.troubles = stats.troubles
        self._committer = Committer(member, self.progress, stats, lambda error, what: f"{what}: {error}")

    def commit(self, now: float, positions: dict[TopicPartition, int] | None = None) -> int:
        before = self._broker.asked.count("OffsetCommit")
        self._committer.commit(POSITIONS if positions is None else positions, now)
        return self._broker.asked.count("OffsetCommit") - before


@contextmanager
def commits(answers: Any = None) -> Iterator[Commits]:
    with scripted_group({"OffsetCommit": answers or committed()}) as (broker, member):
        yield Commits(broker, member)


def test_a_rejected_commit_waits_and_is_an_error_until_it_is_over_while_the_others_are_committed_once() -> None:
    with commits([rejected(CoordinatorLoadInProgressError.errno), *[DENIED] * 3, committed()]) as made:
        assert made.commit(0.0) == 2, "an error of the group is tried again at once"
        assert made.progress.commits.known == {ORDERS_0: 10, ORDERS_1: 20}
        assert made.commit(0.5) == 0, "it is too early"
        assert made.commit(1.5) == 1
        made.commit(13.0)
        text = "the offsets of payments-0 (TopicAuthorizationFailedError) cannot be committed; the other partitions are"
        assert made.troubles == {"commit": (text, None)}

        assert made.commit(30.0) == 1
        assert (made.progress.commits.known, made.troubles) == (POSITIONS, {})
        assert made.commit(60.0) == 0
        assert made.commit(61.0, {**POSITIONS, ORDERS_0: 11}) == 1
        assert made.progress.commits.known == {**POSITIONS, ORDERS_0: 11}


def test_a_position_is_committed_again_when_its_log_is_seen_to_go_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    """The note named a lower log end. The commit waits until no other has been due for a while."""
    with commits() as made:
        made.progress.epochs.began({ORDERS_0: LogSeen(1, 9)})
        assert made.commit(0.0) == 1
        made.progress.epochs.observe({ORDERS_0: LogSeen(1, 10)})
        assert made.commit(0.1) == 0
        monkeypatch.setattr(type(made.progress.commits), "is_quiet", True)

        assert made.commit(2.0) == 1
        assert made.commit(3.0) == 0
