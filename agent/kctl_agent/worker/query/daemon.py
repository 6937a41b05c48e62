"""PySpark's daemon with what a put needs already imported: it forks a Python for each task, and each had to import it.

Spark runs it in the executors (`spark.python.daemon.module`). PySpark's own imports nothing that may start threads,
for a fork has none of them. Here that is jemalloc's thread, of pyarrow, which jemalloc itself stops before a fork and
starts anew after it; OpenBLAS starts none, because Spark sets `OMP_NUM_THREADS` to the processors of a task.
"""

from __future__ import annotations

import gc

import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

import kctl_agent.storage.file
import kctl_agent.worker.query.put  # noqa: F401

if __name__ == "__main__":
    gc.collect()
    gc.freeze()  # or each fork would copy what its garbage collector walks through
    manager()
