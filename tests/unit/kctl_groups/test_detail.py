from __future__ import annotations

from kctl.groups.filters import bounded, detail_of
from kctl.groups.snapshot import GroupSnapshot
from kctl.status.assessments import NOT_ASSESSED
from tests.partitions import Row, columns_of


def group(name: str, partitions: int) -> GroupSnapshot:
    rows = (Row("t", number, 0, 1, None, 2, None, None, None, 0.1) for number in range(partitions))
    return GroupSnapshot("main", name, columns_of(*rows).of_group(0), NOT_ASSESSED)


def test_the_detail_of_a_group_is_by_the_patterns_of_its_name() -> None:
    detail = detail_of(["big-*"], ["/huge-.*/"])

    assert [detail(name) for name in ("small", "big-one", "huge-one")] == ["partition", "topic", "group"]


def test_of_too_many_partitions_those_of_the_largest_groups_are_cut() -> None:
    groups = (group("a", 5), group("b", 50), group("c", 20), group("d", 5))

    kept, cut = bounded(groups, 30)

    assert cut == 1
    assert [(each.group, each.detail) for each in kept] == [
        ("a", "partition"),
        ("b", "topic"),
        ("c", "partition"),
        ("d", "partition"),
    ]
    assert bounded(groups, 0) == (groups, 0)
    assert bounded(groups, 80) == (groups, 0)
    assert [each.detail for each in bounded(groups, 4)[0]] == ["topic"] * 4
