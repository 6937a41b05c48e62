"""Plans of batches: what finds the files of a batch that nobody commits or removes.

A batch writes its plan before its first file and removes it after its commit: which stored offsets it was planned on,
and on which version of the table. As long as there is a plan, its folder is left alone by `vacuum`.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kctl_agent.storage.base import StorageUnusable
from kctl_agent.storage.lake.log import was_added

if TYPE_CHECKING:
    from kctl_agent.storage.lake.table import LakeTable

__all__ = ["BATCH", "FOLDER", "Plan", "plan_path", "sweep"]

log = logging.getLogger(__name__)

BATCH = "kctl-"
"""How the folder of a batch begins."""
FOLDER = "_kctl"
"""Of the plans, in the table's folder; one that begins so is hidden from every engine."""
GIVEN_UP_SECONDS = 86_400.0
"""After so long a plan without a folder is removed though it may still be committed: a batch that fails for days leaves
one with each try, and each has to be read."""


@dataclass(frozen=True, slots=True)
class Plan:
    """`version` is the table's at the beginning of the batch; `offsets` are the numbers of its `txn` actions then: of
    each name its own and the one of `NAME/version`, None where there was none."""

    version: int
    offsets: Mapping[str, tuple[int | None, int | None]]

    def write(self, path: Path) -> None:
        """All at once, for others may read it. Raises StorageUnusable."""
        written = path.with_suffix(".new")
        try:
            path.parent.mkdir(exist_ok=True)
            written.write_text(json.dumps({"version": self.version, "offsets": self.offsets}))
            os.replace(written, path)
        except OSError as error:
            with suppress(OSError):
                written.unlink(missing_ok=True)
            raise StorageUnusable(f"{path.parent} cannot be written: {error.strerror}") from error

    @classmethod
    def read(cls, path: Path) -> Plan:
        """Raises FileNotFoundError; ValueError: a power cut has damaged it."""
        try:
            found = json.loads(path.read_text())
            return cls(int(found["version"]), {name: (at, of) for name, (at, of) in found["offsets"].items()})
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"{path} is no plan of a batch") from error

    def may_be_committed(self, read: Callable[[str], int | None]) -> bool:
        """Whether all stored offsets still are what they were; `read` answers the number of a name, as
        `LogState.transaction_version` does."""
        return all((read(name), read(f"{name}/version")) == numbers for name, numbers in self.offsets.items())


def plan_path(table: Path, name: str) -> Path:
    """Of the batch whose folder has this name."""
    return table / FOLDER / f"{name}.json"


def sweep(table: LakeTable) -> None:
    """Remove what batches have left that can never be committed any more: the stored offset of one of their partitions
    is not the one that they were planned on. A frozen batch that can still be committed keeps its files.

    Raises StorageUnusable.
    """
    plans = dict(_read_all(table.path / FOLDER))  # first: none of them is newer than the table that is read
    if not plans:
        return
    with table.state() as newest:
        version = newest.version
        left = {
            path: plan
            for path, plan in plans.items()
            if plan is None or not plan.may_be_committed(newest.transaction_version) or _is_given_up(table.path, path)
        }
    for path, plan in left.items():
        try:
            _remove(table.path, path, plan, version)
        except OSError as error:  # no batch needs it
            log.debug("what %s has left was not removed: %s", path.stem, error)


def _read_all(folder: Path) -> Iterator[tuple[Path, Plan | None]]:
    """None: a power cut has damaged it."""
    for path in folder.glob("*.json"):
        try:
            yield path, Plan.read(path)
        except OSError as error:  # mostly because its batch has ended
            log.debug("the plan of %s was not read: %s", path.stem, error)
        except ValueError:
            yield path, None


def _is_given_up(table: Path, path: Path) -> bool:
    """Whether a batch has failed long ago, or was killed before its first file."""
    return not (table / path.stem).exists() and path.stat().st_mtime < time.time() - GIVEN_UP_SECONDS


def _remove(table: Path, path: Path, plan: Plan | None, version: int) -> None:
    """A batch may have been committed all the same, if its process was killed before it removed the plan: then older
    versions have its files, also where an OPTIMIZE has replaced them since. Where the log does not show it any more,
    they are left to `vacuum`, which keeps what an older version may need."""
    folder = table / path.stem
    # A version below the plan's: the table has gone back.
    if plan is not None and version >= plan.version and folder.exists():
        is_added = was_added(table, path.stem, range(plan.version + 1, version + 1))
        if is_added is False:
            shutil.rmtree(folder, ignore_errors=True)
    path.unlink(missing_ok=True)
