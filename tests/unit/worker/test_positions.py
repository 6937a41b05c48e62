"""Where reading begins: the table of design section 6, "What the mark may not hide"."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kctl_agent.storage.base import Mark
from kctl_agent.worker.positions import Found, decide


def found(
    committed: int | None, log: tuple[int, int] = (0, 1000), topic_id: str | None = "A", diverged: int | None = None
) -> Found:
    return Found("orders", 0, topic_id, committed, *log, diverged=diverged)


def mark(next_: int, committed: int | None, topic_id: str | None = "A") -> Mark:
    return Mark("orders", 0, topic_id, next_, committed)


CASES = [
    # why, found, mark, reset -> offset, kinds
    ("a new group, earliest", found(None, (5, 1000)), None, "earliest", 5, []),
    ("a new group, latest", found(None, (5, 1000)), None, "latest", 1000, []),
    ("a group that another client left", found(40), None, "earliest", 40, []),
    ("an orderly restart", found(200), mark(200, 200), "earliest", 200, []),
    ("a crash between put and commit", found(100), mark(200, 100), "earliest", 200, []),
    ("a crash before the first commit", found(None), mark(200, 0), "earliest", 200, []),
    ("commits that the mark was not told of", found(150), mark(200, 100), "earliest", 200, []),
    ("reset to earliest", found(0), mark(200, 200), "earliest", 0, ["rewound"]),
    ("reset to between", found(120), mark(200, 200), "earliest", 120, ["rewound"]),
    ("reset to latest", found(1000), mark(200, 200), "earliest", 1000, ["skipped"]),
    ("reset by one forward", found(201), mark(200, 200), "earliest", 201, ["skipped"]),
    ("the topic was made again", found(None, (0, 10), "B"), mark(200, 200), "earliest", 0, ["topic_recreated"]),
    ("made again, old commit left", found(200, (0, 10), "B"), mark(200, 200), "latest", 0, ["topic_recreated"]),
    ("a broker without topic ids", found(200, (0, 1000), None), mark(200, 200), "earliest", 200, []),
    ("truncated by an unclean election", found(200, (0, 150)), mark(200, 200), "earliest", 150, ["truncated"]),
    ("truncated and grown again", found(200, diverged=150), mark(200, 200), "earliest", 150, ["truncated"]),
    (
        "truncated and grown a little",
        found(200, (0, 170), diverged=150),
        mark(200, 200),
        "earliest",
        150,
        ["truncated"],
    ),
    ("truncated to nothing", found(200, (180, 300), diverged=0), mark(200, 200), "earliest", 180, ["truncated"]),
    ("truncated above the position", found(200, diverged=201), mark(200, 200), "earliest", 200, []),
    ("truncated, then made again", found(None, (0, 9), "B", 150), mark(200, 200), "earliest", 0, ["topic_recreated"]),
    ("truncated, then killed", found(200, diverged=150), mark(150, 150), "earliest", 150, ["skipped", "truncated"]),
    ("retention overtook the reader", found(200, (300, 1000)), mark(200, 200), "earliest", 300, ["records_lost"]),
    (
        "reset to what retention removed",
        found(0, (50, 1000)),
        mark(200, 200),
        "earliest",
        50,
        ["rewound", "records_lost"],
    ),
]


@pytest.mark.parametrize(("why", "at", "known", "reset", "offset", "kinds"), CASES, ids=[case[0] for case in CASES])
def test_reading_begins_where_nothing_is_lost_or_hidden(
    why: str, at: Found, known: Mark | None, reset: str, offset: int, kinds: list[str]
) -> None:
    start = decide(at, known, reset)

    assert start.offset == offset
    assert [moved.kind for moved in start.moved] == kinds
    assert all(str(moved.from_offset) in moved.sentence("orders-0") for moved in start.moved)


def test_the_mark_stays_when_reading_simply_goes_on() -> None:
    assert decide(found(100), mark(200, 100), "earliest").mark is None


def test_the_mark_follows_a_reset_and_takes_the_new_topic_id() -> None:
    assert decide(found(120), mark(200, 200), "earliest").mark == mark(120, 120)
    assert decide(found(None, (0, 9), "B"), mark(200, 200), "earliest").mark == mark(0, 0, "B")


@given(
    st.none() | st.integers(0, 50),
    st.integers(0, 50),
    st.integers(0, 50),
    st.none() | st.integers(0, 30),
    st.sampled_from(["earliest", "latest"]),
)
def test_reading_always_begins_inside_the_log_and_the_decision_is_stable(
    committed: int | None, start: int, length: int, recorded: int | None, reset: str
) -> None:
    at = found(committed, (start, start + length))

    first = decide(at, mark(30, recorded), reset)
    again = decide(found(first.offset, (start, start + length)), first.mark or mark(30, recorded), reset)

    assert start <= first.offset <= start + length
    assert again.offset == first.offset
    assert again.moved == ()
