"""Plans of batches: what finds the files of a batch that nobody commits or removes.

A batch writes its plan before its first file and removes it after its commit: which stored offsets it was planned on,
and on which version of the table. As long as there is a plan, its folder is left alone by `vacuum`.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kctl_agent.storage.base import StorageUnusable
from kctl_agent.storage.lake.log import was_added

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from kctl_agent.storage.lake.table import LakeTable

__all__ = ["BATCH", "FOLDER", "Plan", "plan_path", "sweep"]

log = logging.getLogger(__name__)

BATCH = "kctl-"
"""How the folder of a batch begins."""
FOLDER = "_kctl"
"""Of the plans, in the table's folder; one that begins so is hidden from every engine."""


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
            raise StorageUnusable(f"{path.parent} cannot be written: {error.strerror}") from error

    @classmethod
    def read(cls, path: Path) -> Plan:
        """Raises FileNotFoundError; ValueError: a power cut has damaged it."""
        try:
            found = json.loads(path.read_text())
            return cls(int(found["version"]), {name: (at, of) for name, (at, of) in found["offsets"].items()})
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"{path} is no plan of a batch") from error

    def may_be_committed(self, table: DeltaTable) -> bool:
        """Whether all stored offsets still are what they were."""
        return all(
            (table.transaction_version(name), table.transaction_version(f"{name}/version")) == numbers
            for name, numbers in self.offsets.items()
        )


def plan_path(table: Path, name: str) -> Path:
    """Of the batch whose folder has this name."""
    return table / FOLDER / f"{name}.json"


def sweep(table: LakeTable) -> None:
    """Remove what batches have left that can never be committed any more: the stored offset of one of their partitions
    is not the one that they were planned on. A frozen batch that can still be committed keeps its files.

    Raises StorageUnusable.
    """
    for path in (table.path / FOLDER).glob("*.json"):
        try:
            _sweep_one(table, path)
        except OSError as error:  # no batch needs it
            log.debug("what %s has left was not removed: %s", path.stem, error)


def _sweep_one(table: LakeTable, path: Path) -> None:
    """A batch may have been committed all the same, if its process was killed before it removed the plan: then older
    versions have its files, also where an OPTIMIZE has replaced them since. Where the log does not show it any more,
    they are left to `vacuum`, which keeps what an older version may need."""
    is_added: bool | None = None
    try:
        plan = Plan.read(path)
    except FileNotFoundError:
        return
    except ValueError:
        pass
    else:
        with table.latest() as newest:
            version = newest.version()
            if plan.may_be_committed(newest):
                return
        if version >= plan.version:  # else the table has gone back
            is_added = was_added(table.path, path.stem, range(plan.version + 1, version + 1))
    if is_added is False:
        shutil.rmtree(table.path / path.stem, ignore_errors=True)
    path.unlink(missing_ok=True)
