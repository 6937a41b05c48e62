"""The configuration of the chosen fleet, and its table."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kctl.cli.options import ConfigOption
from kctl.dead_letters.storage import opened_lake
from kctl.errors import UsageError
from kctl.fleets import find

if TYPE_CHECKING:
    from kctl.config.sections import Config
    from kctl_agent.storage.lake.storage import LakeStorage


def load_fleet(config: ConfigOption) -> Config:
    from kctl.config.load import load

    return load(find(config, os.environ).config, os.environ)


@contextmanager
def opened_table(config: Config) -> Iterator[LakeStorage]:
    """As `opened_lake`; the table must exist. Raises UsageError too."""
    if not config.storage.kind.is_table:
        raise UsageError(f'storage.mode is "{config.storage.mode}": only a table (mode `lake`) has such files')
    with opened_lake(config) as lake:
        with lake.table.state():  # raises if there is none yet
            pass
        yield lake
