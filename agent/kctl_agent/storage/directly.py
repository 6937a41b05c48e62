"""Mode `directly`: the handler runs inside the batch. One SQLite file keeps stored offsets and dead letters."""

from __future__ import annotations

import time
from collections.abc import Sequence

from kctl_agent.errors import StorageError
from kctl_agent.message import Message
from kctl_agent.storage.ack_rules import given_up
from kctl_agent.storage.base import Writer
from kctl_agent.storage.chunk import Advance
from kctl_agent.storage.claim import DeadLetter
from kctl_agent.storage.file import FileStorage, dead_letter_table, offset_table
from kctl_agent.storage.file.schema import transaction
from kctl_agent.storage.put_rules import judged


class DirectlyStorage(FileStorage):
    @property
    def identity(self) -> str:
        return f"directly:{self.path}"

    def writer(self) -> Writer:
        raise StorageError('storage.mode is "directly": messages go to the handler and are not stored')

    def finish(self, advance: Advance, dead: Sequence[tuple[Message, str]], topic_id: str | None) -> None:
        """Moves a stored offset and stores dead letters in one transaction. Raises as `advance_offsets`."""
        dead_letters = given_up([m for m, _ in dead], [error for _, error in dead], topic_id, self.codec, time.time())
        with self._session(is_durable=True) as db, transaction(db):
            stored = offset_table.read(db, [advance.tp]).get(advance.tp)
            offset_table.advance(db, judged(advance, stored), advance.end)
            dead_letter_table.insert(db, dead_letters)

    def _put_back_dead(self, dead_letters: list[DeadLetter]) -> int:  # noqa: ARG002
        raise StorageError(
            'storage.mode is "directly": there is no queue for requeued dead letters; to requeue them, use mode '
            '"file" with the same storage.path'
        )
