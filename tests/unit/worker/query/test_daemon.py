"""The daemon that forks the executors' Pythons does this work once, so that no fork repeats it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from kctl_agent.worker.query.daemon import worth_searching


def run(code: str, **environment: str) -> str:
    env = {**os.environ, "OMP_NUM_THREADS": "1", **environment}  # as Spark sets it for its Pythons
    return subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True).stdout


def test_it_imports_what_a_put_needs_and_starts_no_thread_that_a_fork_would_lack() -> None:
    done = run(
        "import os, sys\n"
        "from kctl_agent.worker.query.daemon import import_for_tasks\n"
        "import_for_tasks()\n"
        "print(*(open(f'/proc/self/task/{task}/comm').read().strip() for task in os.listdir('/proc/self/task')))\n"
        "print(*(name in sys.modules for name in ('kctl_agent.worker.query.put', 'pyarrow', 'pyspark.worker')))\n"
    )

    threads, imported = done.splitlines()
    assert set(threads.split()) <= {Path(sys.executable).name, "python", "python3", "jemalloc_bg_thd"}
    assert len([name for name in threads.split() if name != "jemalloc_bg_thd"]) == 1
    assert imported == "True True True"


def test_of_pyspark_the_installed_one_is_imported_and_no_copy_of_it_but_that_of_another_spark_is() -> None:
    zips = "/env/site-packages/pyspark/python/lib/pyspark.zip", "/opt/spark/python/lib/pyspark.zip"

    assert worth_searching([*zips, "/env/site-packages", "/own.zip"]) == [zips[1], "/env/site-packages", "/own.zip"]
    assert worth_searching([*zips, "/elsewhere"]) == [*zips, "/elsewhere"]
