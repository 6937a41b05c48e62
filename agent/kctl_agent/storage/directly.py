"""Mode `directly`: no storage between Kafka and the handler, which runs inside the batch.

What remains is what has to outlive a batch: the stored offsets, and the dead letters, in one SQLite file.
"""

from __future__ import annotations

from kctl_agent.errors import StorageError
from kctl_agent.storage.base import Writer
from kctl_agent.storage.claim import DeadLetter
from kctl_agent.storage.file import FileStorage


class DirectlyStorage(FileStorage):
    """See `Storage`, without its queue."""

    @property
    def identity(self) -> str:
        return f"directly:{self.path}"

    def writer(self) -> Writer:
        raise StorageError('storage.mode is "directly": the handler gets the messages, they are not put anywhere')

    def _put_back_dead(self, dead_letters: list[DeadLetter]) -> int:  # noqa: ARG002
        raise StorageError(
            'storage.mode is "directly": there is no queue to put dead letters back into; with mode "file" and the '
            "same storage.path they can be requeued"
        )
