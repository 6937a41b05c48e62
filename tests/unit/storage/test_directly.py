from __future__ import annotations

from pathlib import Path

import pytest

from kctl_agent.errors import StorageError
from kctl_agent.message import Message
from kctl_agent.storage.base import Storage
from kctl_agent.storage.chunk import Advance, StoredOffset
from kctl_agent.storage.kinds import open_storage


def opened(path: Path, mode: str) -> Storage:
    settings = {"mode": mode, "path": str(path), "block_messages": 3, "compression": "none", "limit": 0}
    storage = open_storage(settings)
    storage.prepare()
    return storage


def test_it_takes_no_messages_but_stored_offsets_and_dead_letters(tmp_path: Path) -> None:
    storage = opened(tmp_path / "s.sqlite", "directly")
    storage.init_offsets([StoredOffset("t", 0, "A", 5)])
    storage.advance_offsets([Advance("t", 0, 1, 5, 9)])
    storage.dead_letter([Message("t", 0, 7, None, b"v", 1, (), 3)], "no", "A")

    with pytest.raises(StorageError, match="messages go to the handler and are not stored"):
        storage.writer()

    assert storage.identity == f"directly:{tmp_path}/s.sqlite"
    assert storage.stored_offsets([("t", 0)])[("t", 0)].next == 9
    assert storage.claim("a", 10, 60.0) == []
    assert [dead_letter.offset for dead_letter in storage.dead()] == [7]
    storage.close()


def test_its_dead_letters_are_requeued_in_a_storage_with_a_queue(tmp_path: Path) -> None:
    directly = opened(tmp_path / "s.sqlite", "directly")
    directly.dead_letter([Message("t", 0, 7, None, b"v", 1, (), 3)], "no", "A")
    with pytest.raises(StorageError, match="no queue"):
        directly.requeue_dead()
    directly.close()
    with pytest.raises(StorageError, match="known are: file, redis, directly, lake"):
        opened(tmp_path / "s.sqlite", "tape")

    file = opened(tmp_path / "s.sqlite", "file")

    assert file.requeue_dead() == 1
    assert [message.offset for claim in file.claim("a", 10, 60.0) for message in claim.messages] == [7]
    file.close()
