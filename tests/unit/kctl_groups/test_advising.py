"""The advice on a group of other clients is unknown until the group was saturated, then follows its members' rate."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kctl.groups.advising import GroupAdvisers
from kctl.groups.snapshot import Clusters, ClusterSnapshot, GroupSnapshot
from kctl.reduce.base import GroupStats
from kctl.rows.advice import Advice, Answer
from kctl.rows.partitions import ResetPolicy
from kctl.status import Assessment, Status
from tests.partitions import Row, assessments_of, columns_of

PARTITIONS = 6


class Watched:
    """A group whose members handle 100 messages a second each, polled every ten seconds."""

    def __init__(self, members: int) -> None:
        self.advisers = GroupAdvisers()
        self.members, self.at = members, 0.0
        self.end = self.committed = 0
        self.state = "stable"

    def group(self) -> GroupSnapshot:
        rows = [
            Row("orders", number, 0, self.committed, None, self.end, None, None, None, 0.0, ResetPolicy.NONE)
            for number in range(PARTITIONS)
        ]
        ok = assessments_of(*[Assessment(Status.OK, "commits come")] * PARTITIONS)
        stats = GroupStats(self.state, self.members)
        return GroupSnapshot("main", "billing", columns_of(*rows).of_group(0), ok, stats=stats, age_seconds=1.0)

    def watch(self, seconds: float, arrivals: float) -> Advice:
        """Lets `arrivals` messages a second arrive; returns the last advice."""
        for _ in range(round(seconds / 10)):
            self.at += 10
            self.end += round(arrivals * 10 / PARTITIONS)
            self.committed = min(self.end, self.committed + round(self.members * 100 * 10 / PARTITIONS))
            cluster = ClusterSnapshot("main", (self.group(),), self.at, self.at, 0.1, {}, {})
            self.advisers.prepare(Clusters((cluster,)))
        return self.advisers.advice(self.group())


@pytest.mark.shows("a group of any client has advice once it was seen saturated")
def test_what_a_member_can_do_is_known_once_all_were_busy() -> None:
    watched = Watched(members=2)
    first = watched.advisers.advice(watched.group())
    never_busy = watched.watch(300, arrivals=150)
    saturated = watched.watch(300, arrivals=300)

    assert first.reason == "the group is watched from now on: ask again in a minute"
    assert (never_busy.answer, "long enough to keep all members busy" in never_busy.reason) == (Answer.UNKNOWN, True)
    assert saturated.capacity_per_second == pytest.approx(100, rel=0.01)
    assert (saturated.answer, saturated.current, saturated.workers) == (Answer.WORKERS, 2, 4)


def test_rare_commits_do_not_make_members_look_faster() -> None:
    watched = Watched(members=2)
    watched.watch(10, arrivals=300)
    watched.advisers.advice(watched.group())
    for _ in range(12):
        members, watched.members = watched.members, 0
        for _ in range(2):  # polls without a commit
            watched.at += 10
            watched.end += 500
            stats = GroupStats("stable", 2)
            group = replace(watched.group(), stats=stats)
            watched.advisers.prepare(Clusters((ClusterSnapshot("main", (group,), watched.at, 0.0, 0.1, {}, {}),)))
        watched.members = members
        watched.committed += 667  # of three polls, including the next one
        found = watched.watch(10, arrivals=300)

    assert found.capacity_per_second == pytest.approx(100, rel=0.05)


@pytest.mark.parametrize(
    ("changes", "why"),
    [({"state": "preparing_rebalance"}, "the group is rebalancing"), ({"members": 0}, "the group has no members")],
)
def test_a_group_that_does_not_show_what_it_needs_has_no_advice(changes: dict[str, object], why: str) -> None:
    watched = Watched(members=2)
    watched.advisers.advice(watched.group())
    for name, value in changes.items():
        setattr(watched, name, value)

    assert watched.watch(100, arrivals=300).reason == why


def test_only_the_last_fifty_groups_are_watched() -> None:
    advisers, group = GroupAdvisers(), Watched(members=2).group()
    for number in range(60):
        advisers.advice(replace(group, group=f"g{number}"))

    assert [key[1] for key in advisers._watched] == [f"g{number}" for number in range(10, 60)]
