from __future__ import annotations

import pytest

from kctl.groups.filters import NameFilter, bounded, detail_of, fits
from kctl.groups.snapshot import GroupSnapshot
from kctl.status.assessments import NOT_ASSESSED
from tests.partitions import Row, columns_of

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
    wanted = NameFilter(["payments-*", "billing"], ["*-us"])
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
