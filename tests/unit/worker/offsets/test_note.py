from __future__ import annotations

import pytest

from kctl_agent.worker.offsets.commit_metadata import CommitNote, LogSeen, StorageId, log_seen, parse

STORAGE = StorageId("4f1c", "host-1:file:/srv/orders.sqlite")


@pytest.mark.parametrize("seen", [None, LogSeen(7, 2**40)])
@pytest.mark.parametrize("topic_id", [None, "a71c07f8-44ae-4c3f-8f0b-2a1a0cbb4b0e"])
def test_a_note_is_read_back_as_it_was_written(seen: LogSeen | None, topic_id: str | None) -> None:
    note = CommitNote(STORAGE, topic_id, seen)

    assert parse(note.format()) == note


def test_a_note_stays_far_below_what_brokers_keep() -> None:
    note = CommitNote(StorageId("f" * 32, "x" * 5000), "0" * 36, LogSeen(2**31, 2**62))

    assert len(note.format()) < 512


@pytest.mark.parametrize("text", [None, "", "by hand", "[1]", "7", '{"kctl":"1"}', '{"leader_epoch":3,"log_end":40}'])
def test_what_another_client_has_committed_has_no_note(text: str | None) -> None:
    assert parse(text) is None


def test_of_what_another_client_has_committed_its_leader_epoch_counts() -> None:
    assert log_seen(None, 40, 3) == LogSeen(3, 40)
    assert log_seen(None, 40, -1) is None
    assert log_seen(None, 40, None) is None
    assert log_seen(CommitNote(STORAGE, None, LogSeen(2, 90)), 40, 3) == LogSeen(2, 90)
