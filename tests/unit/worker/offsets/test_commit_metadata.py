"""The note in a commit's metadata, and truncation by a new leader, found from the reports of leaders (KIP-320)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka import TopicPartition

from kctl_agent.worker.offsets.commit_metadata import (
    CommitNote,
    Epochs,
    LogSeen,
    StorageId,
    divergence,
    log_seen,
    parse,
)
from kctl_agent.worker.offsets.positions import Found, decide

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


Log = list[int]
"""The epoch of each record; a leader appends in its own epoch, so epochs never decrease."""


def end_of_epoch(log: Log, epoch: int) -> int:
    """Kafka's answer to OffsetForLeaderEpoch (LeaderEpochFileCache.endOffsetFor)."""
    return next((offset for offset, each in enumerate(log) if each > epoch), len(log))


@pytest.mark.shows("a truncated log is read from where it differs; a clean election does not count as truncation")
@given(st.integers(0, 40), st.integers(0, 40), st.integers(0, 40), st.integers(0, 60), st.booleans())
def test_only_truncations_are_read_again(both: int, alone: int, read: int, regrown: int, is_clean: bool) -> None:
    """A leader of epoch 3 appends to a log of epoch 1; the next one, of epoch 5, has all of it or only the common
    part."""
    old: Log = [1] * both + [3] * alone
    new: Log = (old if is_clean else [1] * both) + [5] * regrown
    position = min(read, len(old))

    diverged = divergence(LogSeen(3, len(old)), end_of_epoch(new, 3))
    found = Found("orders", 0, "A", position, 0, len(new), None, LogSeen(5, len(new)), diverged)
    start = decide(found, None, 0, StorageId("s", "here"))

    shared = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    assert start.offset == min(position, shared)
    assert [moved.kind for moved in start.moved] == (["truncated"] if position > shared else [])


def test_what_an_older_leader_reports_late_counts_for_nothing() -> None:
    epochs = Epochs()
    epochs.began({TP: LogSeen(4, 100)})

    for reported in (LogSeen(3, 500), LogSeen(4, 90)):
        epochs.observe({TP: reported})
    assert epochs.known == {TP: LogSeen(4, 100)}

    epochs.observe({TP: LogSeen(5, 80)})
    assert epochs.known == {TP: LogSeen(5, 80)}


def test_epochs_of_a_revoked_partition_do_not_count_until_it_is_read_again() -> None:
    epochs = Epochs()
    epochs.began({TP: LogSeen(4, 100)})

    epochs.give_up([TP])
    assert epochs.known == {}
    assert epochs.seen(TP) == LogSeen(4, 100), "its offset is still committed"

    epochs.began({TP: LogSeen(6, 50)})
    assert epochs.known == {TP: LogSeen(6, 50)}

    epochs.began({TP: None})  # by brokers that report no epoch
    assert (epochs.known, epochs.seen(TP), epochs.uncommitted({TP: 100})) == ({}, None, {})


def test_the_last_offset_of_a_flow_is_noted_once_more_when_the_log_was_seen_to_go_so_far() -> None:
    epochs = Epochs()
    epochs.began({TP: LogSeen(4, 100)})
    assert epochs.uncommitted({TP: 100}) == {}, "nothing was committed here"

    epochs.committed([TP])
    assert epochs.uncommitted({TP: 120}) == {}, "nobody has reported yet that the log goes so far"

    epochs.observe({TP: LogSeen(4, 120)})
    assert epochs.uncommitted({TP: 120}) == {TP: 120}

    epochs.committed([TP])
    epochs.observe({TP: LogSeen(4, 130)})
    assert epochs.uncommitted({TP: 120}) == {}


@pytest.mark.parametrize("seen", [None, LogSeen(7, 2**40)])
@pytest.mark.parametrize("topic_id", [None, "a71c07f8-44ae-4c3f-8f0b-2a1a0cbb4b0e"])
def test_a_note_is_read_back_as_it_was_written(seen: LogSeen | None, topic_id: str | None) -> None:
    note = CommitNote(STORAGE, topic_id, seen)
    longest = CommitNote(StorageId("f" * 32, "x" * 5000), topic_id, seen)

    assert parse(note.format()) == note
    assert len(longest.format()) < 512, "far below what brokers keep"


@pytest.mark.parametrize("text", [None, "", "by hand", "[1]", "7", '{"kctl":"1"}', '{"leader_epoch":3,"log_end":40}'])
def test_what_another_client_has_committed_has_no_note(text: str | None) -> None:
    assert parse(text) is None


def test_of_what_another_client_has_committed_its_leader_epoch_counts() -> None:
    assert [log_seen(None, 40, epoch) for epoch in (3, -1, None)] == [LogSeen(3, 40), None, None]
    assert log_seen(CommitNote(STORAGE, None, LogSeen(2, 90)), 40, 3) == LogSeen(2, 90)
