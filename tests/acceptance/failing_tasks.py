"""`python failing_tasks.py FOLDER`: fails three Spark jobs and prints what the driver makes of each, as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException

from kctl_agent.storage.chunk import StoredOffset
from kctl_agent.storage.file import FileStorage
from kctl_agent.worker.query.batch_failure import failure
from kctl_agent.worker.query.batch_put import BatchRange
from kctl_agent.worker.query.put import RESULT_SCHEMA, PutJob, put_in_task
from tests.acceptance.lone_spark import lone_session

TOKEN = "5f2a"
RECORD = (
    "0 as topic", "0 as partition", "id as offset", "0L as timestamp_ms", "cast(null as binary) as key",
    "cast('v' as binary) as value", "cast(null as binary) as headers",
)  # fmt: skip


def quotes(batches: Iterator[Any]) -> Iterator[Any]:
    yield from ()
    raise ValueError("no price in\nStorageUnusable: 1 storage_unusable TaskFailed")


def tasks(folder: Path) -> dict[str, Callable[[Iterator[Any]], Iterator[Any]]]:
    gone, there = FileStorage(folder / "gone" / "storage.sqlite"), FileStorage(folder / "storage.sqlite")
    there.prepare()
    there.init_offsets([StoredOffset("t", 0, None, 5)])
    plans = {("t", 0): BatchRange(7, 8, 1, None)}
    return {
        "unusable": partial(put_in_task, PutJob(gone, plans, TOKEN)),
        "gap": partial(put_in_task, PutJob(there, plans, TOKEN)),
        "quoted": quotes,
    }


def main(folder: Path) -> None:
    spark = lone_session(folder)
    found = {}
    for name, task in tasks(folder).items():
        try:
            spark.range(7, 8, numPartitions=1).selectExpr(*RECORD).mapInArrow(task, RESULT_SCHEMA).collect()
        except PySparkException as error:
            reported = failure(error, TOKEN)
            found[name] = [reported.is_storage, reported.text]
    spark.stop()
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
