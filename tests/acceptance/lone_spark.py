"""A Spark without a fleet in its own process: a script gets a folder and prints its findings as JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from kctl_agent.spark.conf import use_this_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]


def found_by(script: str, folder: Path) -> Any:
    """The findings of this script of the folder `acceptance`; its stderr is the test's."""
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name(script), folder],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def lone_session(folder: Path, conf: Mapping[str, str] = MappingProxyType({})) -> SparkSession:
    """For a script: runs one task at a time, and writes only inside the folder."""
    from pyspark.sql import SparkSession

    use_this_python()
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    return (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.local.dir", str(folder))
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.driver.extraJavaOptions", f"-Djava.io.tmpdir={folder} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config(map=dict(conf))
        .getOrCreate()
    )
