"""The storage of the fleet that is meant, whether the fleet runs or not."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

import typer

from kctl.children import PRIVATE
from kctl.cli.options import ConfigOption, config_option
from kctl.errors import UsageError
from kctl.fleets import find

if TYPE_CHECKING:
    from kctl.config import Config
    from kctl_agent.storage.base import DeadLetterStore, Storage
    from kctl_agent.storage.lake.storage import LakeStorage

__all__ = ["load_fleet", "opened", "opened_dead_letters", "opened_lake", "opened_table"]

S = TypeVar("S", bound="Storage | LakeStorage")


def load_fleet(context: typer.Context, config: ConfigOption) -> Config:
    """The configuration of the fleet that is meant."""
    from kctl.config import load

    return load(find(config_option(context, config), os.environ).config, os.environ)


@contextmanager
def opened(config: Config) -> Iterator[Storage]:
    """The storage of a fleet. A file that does not exist is not made by reading it.

    Raises StorageUnusable: it cannot be opened; nothing was put yet.
    """
    from kctl.config.storage import storage_settings
    from kctl_agent.storage.base import StorageUnusable
    from kctl_agent.storage.kinds import open_storage  # numpy and pyarrow: 200 ms

    if config.storage.kind.is_file and not config.storage.path.exists():
        raise StorageUnusable(f"{config.storage.path} does not exist: no worker has put anything yet")
    with _prepared(open_storage(storage_settings(config))) as storage:
        yield storage


@contextmanager
def opened_lake(config: Config) -> Iterator[LakeStorage]:
    """The table of a fleet of mode `lake`. Raises StorageUnusable, TableRefused: it cannot be used."""
    from kctl.config.storage import storage_settings
    from kctl_agent.storage.kinds import open_lake

    with _prepared(open_lake(storage_settings(config))) as storage:
        yield storage


@contextmanager
def opened_table(config: Config) -> Iterator[LakeStorage]:
    """As `opened_lake`, of a fleet that may have one, which has to be there. Raises UsageError too."""
    if not config.storage.kind.is_table:
        raise UsageError(f'storage.mode is "{config.storage.mode}": only a table (mode `lake`) has files to look after')
    with opened_lake(config) as lake:
        with lake.table.state():  # which raises where there is none yet
            pass
        yield lake


@contextmanager
def opened_dead_letters(config: Config) -> Iterator[DeadLetterStore]:
    """Where the dead letters of a fleet are: in its storage, or in the table beside its table. Raises what `opened` and
    `opened_lake` do."""
    if not config.storage.kind.is_table:
        with opened(config) as storage:
            yield storage
        return
    from kctl_agent.storage.lake.dead_letters.table import DeadLetterTable

    with opened_lake(config) as lake:
        yield DeadLetterTable(lake, config.kafka.group)


@contextmanager
def _prepared(storage: S) -> Iterator[S]:
    """What it writes is for its user alone, as what workers write."""
    before = os.umask(PRIVATE)
    try:
        storage.prepare()
        yield storage
    finally:
        storage.close()
        os.umask(before)
