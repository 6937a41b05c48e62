from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kctl.cli.table import Column, cell, clean, clip, render, width

TWO = (Column("name"), Column("lag", is_number=True))


def test_no_line_ends_in_blanks() -> None:
    assert render((Column("a"), Column("b")), [("x", "long"), ("y", "")]) == ["a  b", "x  long", "y  -"]


def test_what_is_unknown_is_a_dash_and_zero_is_zero() -> None:
    assert [cell(value) for value in (None, False, "", [], 0, True, [1, 2])] == ["-", "-", "-", "-", "0", "yes", "1,2"]


def test_wide_letters_take_two_columns_and_marks_none() -> None:
    assert width("注文") == 4
    assert width("Ko\u0308ln") == 4
    assert render(TWO, [("注文", 5), ("abcd", 6)]) == ["name  lag", "注文    5", "abcd    6"]


def test_control_characters_cannot_steer_the_terminal() -> None:
    assert clean("a\x1b[2Jb\r\nc\x07") == r"a\u001b[2Jb\r\nc\u0007"
    assert cell("\x1b]0;title\x07") == r"\u001b]0;title\u0007"


def test_clipping_keeps_to_the_columns_of_the_terminal() -> None:
    assert clip("abcdef", 6) == "abcdef"
    assert clip("abcdefg", 6) == "abcde…"
    assert clip("注文注文", 6) == "注文…"


@given(st.lists(st.tuples(st.text(max_size=8), st.none() | st.integers()), max_size=5))
def test_every_number_ends_in_the_same_column(rows: list[tuple[str, int | None]]) -> None:
    assert len({width(line) for line in render(TWO, rows)}) == 1


@given(st.lists(st.tuples(st.none() | st.integers(), st.none() | st.integers()), max_size=8))
def test_a_column_of_numbers_is_set_as_each_number_by_itself(rows: list[tuple[int | None, int | None]]) -> None:
    heading, *lines = render([Column("100%", is_number=True), Column("%s")], rows)

    widest = max([len("100%"), *(len(cell(first)) for first, _ in rows)])
    assert heading == f"{'100%':>{widest}}  %s"
    assert lines == [f"{cell(first):>{widest}}  {cell(second)}" for first, second in rows]


@given(st.text(max_size=30), st.integers(1, 20))
def test_a_clipped_text_is_never_wider_than_asked(text: str, columns: int) -> None:
    assert width(clip(text, columns)) <= columns


def test_values_that_are_equal_are_not_taken_for_each_other() -> None:
    columns = [Column("n", is_number=True), Column("name")]

    lines = render(columns, [(1, "a"), (True, None), (1.0, ""), (0, "a"), (False, "käse\x1b"), (None, "a")])

    assert lines == ["  n  name", "  1  a", "yes  -", "1.0  -", "  0  a", "  -  käse\\u001b", "  -  a"]


@given(st.lists(st.tuples(st.none() | st.text(max_size=3), st.none() | st.sampled_from(["a", "bb"])), max_size=8))
def test_a_column_of_names_is_set_as_each_name_by_itself(rows: list[tuple[str | None, str | None]]) -> None:
    columns = [Column("first"), Column("second")]

    lines = render(columns, rows)

    widest = max([len("first"), *(width(cell(row[0])) for row in rows)])
    for line, (first, second) in zip(lines[1:], rows, strict=True):
        gap = " " * (widest - width(cell(first)) + 2)
        assert line == f"{cell(first)}{gap}{cell(second)}".rstrip()
