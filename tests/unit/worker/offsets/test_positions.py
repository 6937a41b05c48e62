"""Where reading starts: docs/architecture.md, "What the stored offset must not hide", and truncation (KIP-320)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka import TopicPartition

from kctl_agent.errors import BadParams
from kctl_agent.storage.chunk import StoredOffset
from kctl_agent.worker.offsets.commit_metadata import (
    CommitNote,
    Epochs,
    LogSeen,
    StorageId,
    divergence,
    log_seen,
    parse,
)
from kctl_agent.worker.offsets.positions import Found, SeekPlan, StartOffset, decide, plan

OURS = StorageId("1", "host-1:file:/srv/s.sqlite")
MOVED_HERE = StorageId("1", "host-2:file:/srv/s.sqlite")
EMPTIED = StorageId("2", "host-1:file:/srv/s.sqlite")
OTHER = StorageId("3", "host-2:file:/srv/s.sqlite")


def ours(committed: int, storage: StorageId = OURS, topic_id: str | None = "A") -> tuple[int, CommitNote]:
    return committed, CommitNote(storage, topic_id)


def found(
    committed: int | tuple[int, CommitNote] | None,
    log: tuple[int, int] = (0, 1000),
    topic_id: str | None = "A",
    diverged: int | None = None,
) -> Found:
    """A plain `committed` comes from another client."""
    offset, note = committed if isinstance(committed, tuple) else (committed, None)
    return Found("orders", 0, topic_id, offset, *log, note, diverged=diverged)


def stored_offset(next_: int, topic_id: str | None = "A") -> StoredOffset:
    return StoredOffset("orders", 0, topic_id, next_, 1)


CASES = [
    # why, found, stored offset -> offset, kinds
    ("a new group", found(None, (5, 1000)), None, 7, []),
    ("a group that another client left", found(40), None, 40, []),
    ("an orderly restart", found(ours(200)), stored_offset(200), 200, []),
    ("a crash between put and commit", found(ours(100)), stored_offset(200), 200, []),
    ("a crash before the first commit", found(None), stored_offset(200), 200, []),
    ("committed offsets that have expired", found(None), stored_offset(200), 200, []),
    ("Kafka has lost its last commits", found(ours(0)), stored_offset(200), 200, []),
    ("a commit with a storage that keeps nothing", found(ours(150, StorageId("", ""))), stored_offset(200), 200, []),
    ("the storage moved to another machine", found(ours(150, MOVED_HERE)), stored_offset(200), 200, []),
    ("reset to earliest", found(0), stored_offset(200), 0, ["rewound"]),
    ("reset to between", found(120), stored_offset(200), 120, ["rewound"]),
    ("reset to latest", found(1000), stored_offset(200), 1000, ["skipped"]),
    ("reset by one forward", found(201), stored_offset(200), 201, ["skipped"]),
    ("reset to where it was", found(200), stored_offset(200), 200, []),
    ("the storage went back in time", found(ours(500)), stored_offset(200), 200, ["storage_rolled_back"]),
    (
        "went back, what it lost is gone from Kafka",
        found(ours(500), (300, 1000)),
        stored_offset(200),
        300,
        ["storage_rolled_back", "records_lost"],
    ),
    ("the storage was emptied", found(ours(500, EMPTIED)), None, 500, ["storage_lost_offsets"]),
    ("the storage lost this partition alone", found(ours(500)), None, 500, ["storage_lost_offsets"]),
    ("emptied, and gone on since", found(ours(500, EMPTIED)), stored_offset(500), 500, []),
    ("another storage", found(ours(500, OTHER)), None, 500, ["other_storage"]),
    ("another storage, where it once was here", found(ours(500, OTHER)), stored_offset(200), 500, ["other_storage"]),
    ("another storage, behind this one", found(ours(100, OTHER)), stored_offset(200), 100, ["other_storage"]),
    ("another storage's offsets, copied to this cluster", found(ours(500, OTHER, "Z")), None, 500, ["other_storage"]),
    ("the topic was recreated", found(None, (0, 10), "B"), stored_offset(200), 0, ["topic_recreated"]),
    ("recreated, old commit left", found(ours(200), (0, 10), "B"), stored_offset(200), 0, ["topic_recreated"]),
    ("recreated, marked, then killed", found(ours(200), (0, 300), "B"), stored_offset(0, "B"), 0, []),
    ("recreated, and no stored offset", found(ours(200), (0, 300), "B"), None, 7, ["topic_recreated"]),
    ("a topic whose id is not known just now", found(ours(200), (0, 1000), None), stored_offset(200), 200, []),
    ("truncated by an unclean election", found(ours(200), (0, 150)), stored_offset(200), 150, ["truncated"]),
    ("truncated and grown again", found(ours(200), diverged=150), stored_offset(200), 150, ["truncated"]),
    ("truncated and grown a little", found(ours(200), (0, 170), diverged=150), stored_offset(200), 150, ["truncated"]),
    ("truncated to nothing", found(ours(200), (180, 300), diverged=0), stored_offset(200), 180, ["truncated"]),
    ("truncated above the position", found(ours(200), diverged=201), stored_offset(200), 200, []),
    ("truncated, then recreated", found(None, (0, 9), "B", 150), stored_offset(200), 0, ["topic_recreated"]),
    ("truncated, marked, then killed", found(ours(200), diverged=150), stored_offset(150), 150, []),
    ("retention overtook the reader", found(ours(200), (300, 1000)), stored_offset(200), 300, ["records_lost"]),
    ("reset to what retention removed", found(0, (50, 1000)), stored_offset(200), 50, ["rewound", "records_lost"]),
]


@pytest.mark.shows("reading starts where no message is lost or hidden")
@pytest.mark.parametrize(("why", "at", "known", "offset", "kinds"), CASES, ids=[case[0] for case in CASES])
def test_reading_loses_nothing(why: str, at: Found, known: StoredOffset | None, offset: int, kinds: list[str]) -> None:
    start = decide(at, known, 7, OURS)

    assert start.offset == offset
    assert [moved.kind for moved in start.moved] == kinds
    assert all(str(moved.from_offset) in moved.sentence("orders-0") for moved in start.moved)


@pytest.mark.parametrize(
    ("at", "stored"),
    [
        (found(120), StoredOffset("orders", 0, "A", 120)),
        (found(None, (0, 9), "B"), StoredOffset("orders", 0, "B", 0)),
        (found(120, topic_id=None), StoredOffset("orders", 0, "A", 120)),
        (found(ours(200), diverged=200), StoredOffset("orders", 0, "A", 200)),
        (found(ours(200), diverged=250), StoredOffset("orders", 0, "A", 200)),
    ],
    ids=["a reset", "a new topic id", "an unknown topic id", "diverged at the offset", "diverged above it"],
)
def test_the_stored_offset_is_set_again(at: Found, stored: StoredOffset) -> None:
    """Otherwise a frozen task of a diverged log would store messages next to the new owner, under the same version."""
    start = decide(at, stored_offset(200), 0, OURS)

    assert start.stored_offset == stored
    assert at.diverged is None or start.moved == ()


def test_a_commit_that_is_not_ours_is_committed_again_before_anything_is_read() -> None:
    assert not decide(found(None), None, 0, OURS).must_commit, "nothing can be mistaken"
    assert not decide(found(ours(100)), stored_offset(200), 0, OURS).must_commit
    assert decide(found(120), stored_offset(200), 0, OURS).must_commit, "a reset"
    assert decide(found(ours(500, OTHER)), stored_offset(200), 0, OURS).must_commit, "another storage"
    assert decide(found(ours(500)), stored_offset(200), 0, OURS).must_commit, "rolled back"


@given(
    st.none() | st.integers(0, 50),
    st.none() | st.sampled_from([OURS, EMPTIED, OTHER]),
    st.integers(0, 50),
    st.integers(0, 50),
    st.none() | st.integers(0, 60),
)
def test_reading_begins_inside_the_log_and_after_a_crash_at_any_step_where_it_was_decided(
    committed: int | None, by: StorageId | None, start: int, length: int, next_: int | None
) -> None:
    log, known = (start, start + length), None if next_ is None else stored_offset(next_)
    at = found(committed if committed is None or by is None else ours(committed, by), log)

    first = decide(at, known, start, OURS)
    after_placing = decide(at, first.stored_offset or known, start, OURS)
    after_committing = decide(found(ours(first.offset), log), first.stored_offset or known, start, OURS)

    assert log[0] <= first.offset <= log[1]
    assert after_placing.offset == first.offset
    assert after_committing == StartOffset(first.offset, None, (), False)


LOG = Found("orders", 3, "A", 200, 100, 300)
FIRST_OF_TIME = {1_000: 100, 2_000: 250}  # milliseconds, and the first offset at or after that time


@pytest.mark.parametrize(
    ("to", "target", "skipped", "again"),
    [
        ("earliest", 100, 0, 120),
        ("latest", 300, 80, 0),
        ("100", 100, 0, 120),
        ("220", 220, 0, 0),
        ("221", 221, 1, 0),
        ("300", 300, 80, 0),
        ("@1000", 100, 0, 120),
        ("@2000", 250, 30, 0),
        ("@9000", 300, 80, 0),
    ],
)
def test_a_seek_reports_how_many_offsets_it_skips_or_repeats(to: str, target: int, skipped: int, again: int) -> None:
    planned = plan(to, LOG, 220, FIRST_OF_TIME.get)

    assert planned == SeekPlan("orders", 3, 220, target)
    assert (planned.skipped, planned.again) == (skipped, again)
    assert planned.to_json() == {
        "topic": "orders", "partition": 3, "from": 220, "to": target, "skipped": skipped, "again": again,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("to", "why"),
    [
        *((to, f"orders-3 has offsets from 100 to 300, so {to} is not one of them") for to in ("99", "301")),
        *((str(2**63), "a seek"), (f"@{2**63}", "a seek"), ("9" * 5000, "a seek"), ("@" + "9" * 5000, "a seek")),
        *((to, "a seek goes to earliest, latest, an offset") for to in ("-1", "+5", "1.5", "@", "")),
    ],
)
def test_an_offset_outside_the_log_is_rejected_before_a_broker_is_asked(to: str, why: str) -> None:
    asked: list[int] = []
    for position in (None, 220):
        with pytest.raises(BadParams, match=why):
            plan(to, LOG, position, asked.append)

    assert asked == []


def test_an_empty_log_has_one_place_to_go_on() -> None:
    empty = Found("orders", 3, "A", None, 7, 7)

    assert {plan(to, empty, None, lambda _: None).target for to in ("earliest", "latest", "7", "@5")} == {7}


TP = TopicPartition("orders", 0)
STORAGE = StorageId("4f1c", "host-1:file:/srv/orders.sqlite")

ENDS = [
    # why, seen before, the new leader's answer for that epoch -> where the log differs
    ("the new leader had everything", LogSeen(4, 100), 100, None),
    ("the old leader went on after it was last seen", LogSeen(4, 100), 130, None),
    ("what the old leader had alone is gone", LogSeen(4, 100), 60, 60),
    ("the new leader has nothing", LogSeen(4, 100), 0, 0),
    ("the new leader does not know the epoch", LogSeen(4, 100), -1, None),
    ("the broker is too old, or may not be asked", LogSeen(4, 100), None, None),
]


@pytest.mark.parametrize(("why", "before", "reported", "offset"), ENDS, ids=[case[0] for case in ENDS])
def test_a_shorter_epoch_is_a_divergence(why: str, before: LogSeen, reported: int | None, offset: int | None) -> None:
    assert divergence(before, reported) == offset


Log = list[int]  # the epoch of each record: a leader appends in its own epoch, so epochs never decrease


def end_of_epoch(log: Log, epoch: int) -> int:
    """Kafka's answer to OffsetForLeaderEpoch (LeaderEpochFileCache.endOffsetFor)."""
    return next((offset for offset, each in enumerate(log) if each > epoch), len(log))


@pytest.mark.shows("a truncated log is read from where it differs; a clean election does not count as truncation")
@given(st.integers(0, 40), st.integers(0, 40), st.integers(0, 40), st.integers(0, 60), st.booleans())
def test_only_truncations_are_read_again(both: int, alone: int, read: int, regrown: int, is_clean: bool) -> None:
    """A leader of epoch 3 appends to a log of epoch 1. The next leader, of epoch 5, has all of it or a common part."""
    old: Log = [1] * both + [3] * alone
    new: Log = (old if is_clean else [1] * both) + [5] * regrown
    position = min(read, len(old))

    diverged = divergence(LogSeen(3, len(old)), end_of_epoch(new, 3))
    found = Found("orders", 0, "A", position, 0, len(new), None, LogSeen(5, len(new)), diverged)
    start = decide(found, None, 0, StorageId("s", "here"))

    shared = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    assert start.offset == min(position, shared)
    assert [moved.kind for moved in start.moved] == (["truncated"] if position > shared else [])


def test_epochs_count_until_a_newer_one_or_the_end_of_their_reading() -> None:
    epochs = Epochs()
    epochs.began({TP: LogSeen(4, 100)})

    for reported in (LogSeen(3, 500), LogSeen(4, 90)):
        epochs.observe({TP: reported})
    assert epochs.known == {TP: LogSeen(4, 100)}, "an older leader reports late"
    epochs.observe({TP: LogSeen(5, 80)})
    assert epochs.known == {TP: LogSeen(5, 80)}

    epochs.give_up([TP])
    assert (epochs.known, epochs.seen(TP)) == ({}, LogSeen(5, 80)), "its offset is still committed"

    epochs.began({TP: LogSeen(6, 50)})
    assert epochs.known == {TP: LogSeen(6, 50)}

    epochs.began({TP: None})  # by brokers that report no epoch
    assert (epochs.known, epochs.seen(TP), epochs.uncommitted({TP: 100})) == ({}, None, {})


@pytest.mark.parametrize("seen", [None, LogSeen(7, 2**40)])
@pytest.mark.parametrize("topic_id", [None, "a71c07f8-44ae-4c3f-8f0b-2a1a0cbb4b0e"])
def test_a_note_is_read_back_as_it_was_written(seen: LogSeen | None, topic_id: str | None) -> None:
    note = CommitNote(STORAGE, topic_id, seen)
    longest = CommitNote(StorageId("f" * 32, "x" * 5000), topic_id, seen)

    assert parse(note.format()) == note
    assert len(longest.format()) < 512, "far below what brokers keep"


@pytest.mark.parametrize(
    "text",
    [None, "", "by hand", "[1]", "7", '{"kctl":"1"}', '{"leader_epoch":3,"log_end":40}', '{"kctl":' + "[" * 4000],
)
def test_what_another_client_has_committed_has_no_note(text: str | None) -> None:
    assert parse(text) is None


@pytest.mark.parametrize(("epoch", "end"), [(-1, 40), (2**31, 40), (3, -1), (3, 2**63)])
def test_a_note_with_numbers_that_kafka_does_not_have_tells_nothing_of_the_log(epoch: int, end: int) -> None:
    note = parse(f'{{"kctl":1,"storage":"s","at":"there","leader_epoch":{epoch},"log_end":{end}}}')

    assert note == CommitNote(StorageId("s", "there"), None, None)


def test_of_what_another_client_has_committed_its_leader_epoch_counts() -> None:
    assert [log_seen(None, 40, epoch) for epoch in (3, -1, None)] == [LogSeen(3, 40), None, None]
    assert log_seen(CommitNote(STORAGE, None, LogSeen(2, 90)), 40, 3) == LogSeen(2, 90)
