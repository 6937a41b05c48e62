"""Compacts and cleans lake tables. At quiet times, the master runs this module and logs the output."""

import json
import os
import sys
import time
from functools import partial

from kctl_agent.errors import StorageError
from kctl_agent.process.bootstrap import leave
from kctl_agent.process.stop import watch_parent
from kctl_agent.rpc.messages import number_of
from kctl_agent.storage.kinds import open_lake
from kctl_agent.storage.lake.dead_letters.table import DeadLetterTable
from kctl_agent.storage.lake.delta.batch_plans import sweep
from kctl_agent.storage.lake.delta.checkpoint import yield_to_others
from kctl_agent.storage.lake.folder import FOLDER
from kctl_agent.storage.lake.maintenance.compaction import Compaction
from kctl_agent.storage.lake.maintenance.vacuum import remove, unused
from kctl_agent.storage.lake.storage import LakeStorage
from kctl_agent.storage.lake.table_storage import TableStorage

LEAST_FILES = 50
"""Compact from this many small files in one partition, like Delta's `autoCompact.minNumFiles`."""
VACUUM_SECONDS = 86_400.0
VACUUMED = f"{FOLDER}/vacuumed"


def main() -> int:
    yield_to_others()
    settings = json.loads(sys.stdin.readline())
    watch_parent(lambda: os._exit(1))
    try:
        done, failed = looked_after(open_lake(settings), settings["group"])
    except StorageError as error:
        done, failed = [], [str(error)]
    sys.stdout.write("; ".join(done + failed))
    return 1 if failed else 0


def looked_after(lake: LakeStorage, group: str) -> tuple[list[str], list[str]]:
    """Maintains the tables and returns what was done and what failed. A failure does not stop later steps."""
    done: list[str] = []
    failed: list[str] = []
    for table in lake.tables():
        for step in (_swept, partial(_once_a_day, lake, group), _compacted):
            try:
                done += step(table)
            except (StorageError, OSError) as error:
                failed.append(str(error))
            except Exception as error:  # delta-rs raises various errors about another writer's data
                failed.append(f"{type(error).__name__}: {error}")
    return done, failed


def _swept(lake: TableStorage) -> list[str]:
    sweep(lake.table)
    return []


def _compacted(lake: TableStorage) -> list[str]:
    compaction = Compaction(lake.table)
    groups = compaction.small_files(lake.target_file_bytes, LEAST_FILES, share=1.0)
    return [str(compaction.run(groups))] if groups else []


def _once_a_day(lake: LakeStorage, group: str, table: TableStorage) -> list[str]:
    last = table.folder.find(VACUUMED)
    if last is not None and time.time() - last.modified <= VACUUM_SECONDS:
        return []
    removed = remove(table.table, unused(table.table))
    expired = 0 if table is lake else DeadLetterTable(lake, group).expire()
    table.folder.write(VACUUMED, b"")
    return [
        *([f"{number_of(removed, 'file')} removed that no recent version uses"] if removed else []),
        *([f"{number_of(expired, 'dead letter')} removed (storage.dead_expire_seconds)"] if expired else []),
    ]


if __name__ == "__main__":
    leave(main())
