import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from kctl.config.sections import ExporterSection, StatusSection
from kctl.groups.advising import GroupAdvisers
from kctl.groups.collector import ClusterCollector, CollectedCluster
from kctl.groups.known_groups import KnownGroups, bounded, detail_of, fits, name_filter
from kctl.groups.snapshot import Clusters, ClusterSnapshot, GroupSnapshot
from kctl.kafka.client.access import plain
from kctl.kafka.groups import ListedGroup
from kctl.kafka.polls.cluster_reading import ClusterReading
from kctl.kafka.protocol.committed_bytes import GroupOffsets, by_topic
from kctl.reduce.base import GroupStats
from kctl.rows.advice import Advice, Answer
from kctl.rows.columns import ABSENT
from kctl.rows.partitions import PartitionRow, ResetPolicy
from kctl.status import Assessment, Status
from kctl.status.assessments import NOT_ASSESSED
from tests.partitions import Row, assessments_of, columns_of
from tests.unit.kctl_master.no_brokers import NoBrokers

GROUP = ListedGroup("billing", "classic", "Stable", "consumer", 1)
OTHER = ListedGroup("other", "classic", "Empty", "consumer", 2)
ORDERS = ("orders", 0)


def whole(**changes: object) -> ClusterReading:
    reading = ClusterReading(
        groups={"billing": GROUP, "other": OTHER},
        members={"billing": 2, "other": 0},
        committed={"billing": by_topic({ORDERS: 4}), "other": by_topic({ORDERS: 9})},
        end={ORDERS: 10},
        start={ORDERS: 0},
        topic_ids={"orders": "first"},
    )
    for name, value in changes.items():
        setattr(reading, name, value)
    return reading


def known(*readings: tuple[float, ClusterReading]) -> KnownGroups:
    found = KnownGroups(stale_after_seconds=60)
    for at, reading in readings:
        found.add(reading, at)
        found.forget(at)
    return found


def rows(found: KnownGroups, group: str, now: float, *, is_read_committed: bool = False) -> Sequence[PartitionRow]:
    columns = found.partitions(now, lambda _: is_read_committed)
    return [*columns.of_group(columns.names.groups.index(group))]


def row(
    found: KnownGroups, group: str, now: float, *, is_read_committed: bool = False
) -> tuple[int | None, int | None, float | None]:
    [only] = rows(found, group, now, is_read_committed=is_read_committed)
    return only.current_offset, only.remaining_count, only.age_seconds


AWAY = whole(committed={}, members={}, end={}, start={})
NO_LOG = whole(end={}, start={})
RECREATED = whole(end={}, start={}, topic_ids={"orders": "second"})


@pytest.mark.parametrize(
    ("readings", "expected"),
    [
        ([(100, whole()), (110, AWAY), (111, AWAY)], (4, 6, 11)),
        ([(100, whole()), (110, whole(committed={}, members={}, end={ORDERS: 12})), (111, AWAY)], (4, 8, 11)),
        ([(100, whole()), (130, NO_LOG), (161, NO_LOG)], (4, None, 0)),
        ([(100, whole()), (110, RECREATED)], (4, None, 0)),
        ([(100, whole(share_lag={"billing": {ORDERS: 1}}))], (4, 1, 0)),
    ],
    ids=["nothing is answered", "an end is", "a log too old", "a recreated topic", "the lag of a share group"],
)
def test_a_part_that_was_not_answered_keeps_its_values_until_they_are_too_old(
    readings: list[tuple[float, ClusterReading]], expected: tuple[int | None, ...]
) -> None:
    found = known(*readings)

    assert row(found, "billing", readings[-1][0]) == expected
    assert found.members(found.groups["billing"], readings[-1][0]) == 2


def test_what_is_too_old_missing_or_listed_nowhere_is_gone() -> None:
    found = known((100, whole()), (150, AWAY), (161, AWAY))

    assert not rows(found, "billing", 161)
    assert found.members(found.groups["billing"], 161) is None
    assert not rows(known((100, whole()), (110, whole(end={}, start={}, unknown={ORDERS}))), "billing", 110)

    partial = whole(groups={"other": OTHER}, is_listed_in_full=False)

    assert known((100, whole()), (110, partial)).groups.keys() == {"billing", "other"}
    assert known((100, whole()), (110, whole(groups={"other": OTHER}))).groups.keys() == {"other"}
    assert known((100, whole()), (110, partial), (161, partial)).groups.keys() == {"other"}


def test_the_lag_of_a_group_that_reads_committed_records_is_counted_to_the_last_stable_offset() -> None:
    found = known((100, whole(stable_end={ORDERS: 7})))

    assert row(found, "billing", 100, is_read_committed=True) == (4, 3, 0)
    assert row(found, "billing", 100) == (4, 6, 0)


def test_partitions_are_sorted_however_the_coordinator_orders_them() -> None:
    mixed = GroupOffsets((("p", (0,)), ("orders", (2, 0, 10))), np.array([5, 7, 4, 9]))
    other = GroupOffsets((("orders", (2, 0, 10)), ("p", (0,))), np.array([7, 4, 9, 5]))

    found = known((100, whole(committed={"billing": mixed})), (101, whole(committed={"billing": other})))

    assert [(row.topic, row.partition, row.current_offset) for row in rows(found, "billing", 101)] == [
        ("orders", 0, 4),
        ("orders", 2, 7),
        ("orders", 10, 9),
        ("p", 0, 5),
    ]


JOB = ListedGroup("job", "checkpoint", None, None, -1)
REFUNDS = ("refunds", 0)


def watched(offsets: dict[tuple[str, int], int], **changes: object) -> ClusterReading:
    return whole(groups={"job": JOB}, committed={"job": by_topic(offsets)}, read_at={"job": 50.0}, **changes)


def lags(found: KnownGroups, now: float = 100) -> dict[tuple[str, int], tuple[int | None, int | None]]:
    return {(row.topic, row.partition): (row.current_offset, row.remaining_count) for row in rows(found, "job", now)}


@pytest.mark.shows("the lag of a watched job is unknown where nobody can know it")
def test_partitions_of_a_checkpoint_that_are_missing_shorter_or_new_have_the_lag_that_is_known() -> None:
    found = known((100, watched({ORDERS: 4, REFUNDS: 9}, unknown={REFUNDS})))

    assert lags(found) == {ORDERS: (4, 6), REFUNDS: (9, None)}
    assert [each.topic for each in found.partitions(100, lambda _: False).lags()[0].unknown] == ["refunds"]
    assert lags(known((100, watched({ORDERS: 11})))) == {ORDERS: (11, None)}
    assert lags(known((100, watched({ORDERS: 10})))) == {ORDERS: (10, 0)}

    new = ("orders", 1)
    found = known((100, watched({ORDERS: 4, new: ABSENT}, end={ORDERS: 10, new: 7}, start={ORDERS: 0, new: 2})))
    assert lags(found) == {ORDERS: (4, 6), new: (None, 5)}
    assert lags(known((100, watched({ORDERS: 4, new: ABSENT})))) == {ORDERS: (4, 6), new: (None, None)}


def test_a_topic_of_another_cluster_has_no_lag_though_there_is_one_of_its_name() -> None:
    reading = watched({ORDERS: 4}, elsewhere={"job": by_topic({REFUNDS: 2})})
    reading.groups["other"], reading.committed["other"] = OTHER, by_topic({REFUNDS: 3})
    reading.end[REFUNDS], reading.start[REFUNDS] = 9, 0

    found = known((100, reading))

    assert lags(found) == {ORDERS: (4, 6), REFUNDS: (2, None)}
    assert row(found, "other", 100) == (3, 6, 0)


def test_offsets_of_a_checkpoint_are_as_old_as_its_reading() -> None:
    found = known((100, watched({ORDERS: 4})))

    assert [row(found, "job", now) for now in (105, 159)] == [(4, 6, 55), (4, 6, 109)]


NAMES = ["payments-eu", "payments-us", "billing", "a/b", 'quoted "name"\nin two lines']


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        (["*"], NAMES),
        ([], []),
        (["payments-*"], ["payments-eu", "payments-us"]),
        (["/payments-(eu|xx)/", "bill?ng"], ["payments-eu", "billing"]),
        (["/.*ments/"], []),
        (["a/b"], ["a/b"]),
        (["quoted*"], ['quoted "name"\nin two lines']),
    ],
)
def test_a_pattern_is_a_glob_or_between_slashes_a_regular_expression(patterns: list[str], expected: list[str]) -> None:
    assert [name for name in NAMES if fits(patterns)(name)] == expected


def test_names_are_denied_detailed_and_rejected_by_their_patterns() -> None:
    wanted = name_filter(["payments-*", "billing"], ["*-us"])
    assert [name for name in NAMES if wanted(name)] == ["payments-eu", "billing"]
    with pytest.raises(ValueError, match="unterminated"):
        fits(["/(/"])
    assert fits(["("])("(")
    detail = detail_of(["big-*"], ["/huge-.*/"])
    assert [detail(name) for name in ("small", "big-one", "huge-one")] == ["partition", "topic", "group"]


def test_of_too_many_partitions_those_of_the_largest_groups_are_cut() -> None:
    def group(name: str, size: int) -> GroupSnapshot:
        rows = (Row("t", number, 0, 1, None, 2, None, None, None, 0.1) for number in range(size))
        return GroupSnapshot("main", name, columns_of(*rows).of_group(0), NOT_ASSESSED)

    groups = (group("a", 5), group("b", 50), group("c", 20), group("d", 5))

    kept, cut = bounded(groups, 30)

    assert (cut, [each.detail for each in kept]) == (1, ["partition", "topic", "partition", "partition"])
    assert bounded(groups, 0) == bounded(groups, 80) == (groups, 0)
    assert [each.detail for each in bounded(groups, 4)[0]] == ["topic"] * 4


async def test_a_bug_ends_no_collection(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = CollectedCluster("main", plain("nowhere:1"), ExporterSection(interval_seconds=0.01), StatusSection())
    collector = ClusterCollector(cluster)
    monkeypatch.setattr(collector, "_reader", NoBrokers())
    seen: list[ClusterSnapshot] = []

    def fail_once(snapshot: ClusterSnapshot) -> None:
        seen.append(snapshot)
        if len(seen) == 1:
            raise RuntimeError("a bug")

    collector.prepare.append(fail_once)
    task = asyncio.create_task(collector.run())
    async with asyncio.timeout(30):
        while len(seen) < 3:  # noqa: ASYNC110 - of another thread
            await asyncio.sleep(0.01)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    await collector.close()

    assert [record.exc_info[1].args for record in caplog.records if record.exc_info] == [("a bug",)]  # type: ignore[union-attr]
    assert seen[-1].errors["groups"] == "no broker is there"


PARTITIONS = 6


class Watched:
    """A group whose members handle 100 messages a second each, polled every ten seconds."""

    def __init__(self, members: int) -> None:
        self.advisers = GroupAdvisers()
        self.members, self.at, self.each_per_second = members, 0.0, 100
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
        for _ in range(round(seconds / 10)):
            self.at += 10
            self.end += round(arrivals * 10 / PARTITIONS)
            self.committed = min(
                self.end, self.committed + round(self.members * self.each_per_second * 10 / PARTITIONS)
            )
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


def test_if_more_members_do_not_help_their_own_code_is_the_limit() -> None:
    watched = Watched(members=2)
    watched.advisers.advice(watched.group())
    watched.watch(300, arrivals=300)
    watched.members, watched.each_per_second = 4, 50

    assert watched.watch(600, arrivals=300).answer is Answer.HANDLER


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
