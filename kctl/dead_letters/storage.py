"""Opens a fleet's storage and dead letters, and changes dead letters. The fleet need not run."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar

from kctl.children import PRIVATE

if TYPE_CHECKING:
    from kctl.config.sections import Config
    from kctl.dead_letters.sending import Send
    from kctl_agent.storage.base import DeadLetterStore, Progress, Storage
    from kctl_agent.storage.lake.storage import LakeStorage
    from kctl_agent.storage.selection import Selection

Verb: TypeAlias = Literal["requeue", "delete", "send"]
S = TypeVar("S", bound="Storage | LakeStorage")

SERVED_REPLY_SECONDS = 10.0
"""Time limit for a server's reply, which an ending master may have to wait for."""


def opened(config: Config) -> AbstractContextManager[Storage]:
    """Opens a fleet's storage. Raises StorageUnusable, also if the SQLite file does not exist."""
    return _prepared(_open(config))


def opened_lake(config: Config) -> AbstractContextManager[LakeStorage]:
    """Opens a fleet's table (mode `lake`). Raises StorageUnusable, TableRefused."""
    return _prepared(_open_lake(config))


@contextmanager
def opened_dead_letters(config: Config) -> Iterator[DeadLetterStore]:
    """Opens a fleet's dead letters. In mode `lake`, they are in a table next to the fleet's table, otherwise in the
    fleet's storage. Raises the errors of `opened` and `opened_lake`."""
    if not config.storage.kind.is_table:
        with opened(config) as storage:
            yield storage
        return
    with opened_lake(config) as lake:
        yield _beside(lake, config)


@contextmanager
def served_dead_letters(config: Config) -> Iterator[DeadLetterStore]:
    """Like `opened_dead_letters`, but callable on any thread of the fleet's master."""
    # Without `_prepared`: the master has set its umask, and the workers prepare the storage.
    storage: Storage | LakeStorage
    storage = _open_lake(config) if config.storage.kind.is_table else _open(config, SERVED_REPLY_SECONDS)
    try:
        yield _beside(storage, config) if config.storage.kind.is_table else storage  # type: ignore[arg-type,misc]
    finally:
        storage.close()


def changed(
    store: DeadLetterStore,
    verb: Verb,
    selection: Selection,
    expect: int | None,
    progress: Progress,
    sending: Callable[[], AbstractContextManager[Send]],
) -> int:
    """Applies `verb` to the selected dead letters, and returns the number of changed ones. Calls `sending` only for the
    verb `send`, to open a sender. Raises the errors of `sending` and `DeadLetterStore`."""
    if verb == "requeue":
        return store.requeue_dead(selection, expect, progress)
    if verb == "delete":
        return store.remove_dead(selection, expect, progress)
    with sending() as send:
        return store.move_dead(send, selection, expect, progress)


def _open(config: Config, reply_seconds: float | None = None) -> Storage:
    from kctl.config.storage import storage_settings
    from kctl_agent.storage.base import StorageUnusable
    from kctl_agent.storage.kinds import open_storage  # importing numpy and pyarrow takes 200 ms

    if config.storage.kind.is_file and not config.storage.path.exists():
        raise StorageUnusable(
            f"{config.storage.path} does not exist: nothing has been put there yet, or it was removed"
        )
    return open_storage(storage_settings(config), reply_seconds=reply_seconds)


def _open_lake(config: Config) -> LakeStorage:
    from kctl.config.storage import storage_settings
    from kctl_agent.storage.kinds import open_lake

    return open_lake(storage_settings(config))


def _beside(lake: LakeStorage, config: Config) -> DeadLetterStore:
    from kctl_agent.storage.lake.dead_letters.table import DeadLetterTable

    def ask_cluster() -> str | None:
        from kctl.kafka.client.access import of_fleet
        from kctl.kafka.client.connection import ClusterConnection

        with ClusterConnection(of_fleet(config), SERVED_REPLY_SECONDS) as connection:
            connection.open()
            return connection.cluster_id

    return DeadLetterTable(lake, config.kafka.group, ask_cluster)


@contextmanager
def _prepared(storage: S) -> Iterator[S]:
    # As in workers, only this user can open new files.
    before = os.umask(PRIVATE)
    try:
        storage.prepare()
        yield storage
    finally:
        storage.close()
        os.umask(before)
