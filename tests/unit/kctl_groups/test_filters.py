from __future__ import annotations

import pytest

from kctl.groups.filters import NameFilter, fits

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


def test_what_is_denied_is_not_wanted_though_it_is_allowed() -> None:
    wanted = NameFilter(["payments-*", "billing"], ["*-us"])

    assert [name for name in NAMES if wanted(name)] == ["payments-eu", "billing"]


def test_an_invalid_regular_expression_is_rejected_with_the_reason() -> None:
    with pytest.raises(ValueError, match="unterminated"):
        fits(["/(/"])
    assert fits(["("])("(")
