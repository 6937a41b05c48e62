"""`python spark_batches.py FOLDER` runs the cases of marking_transforms.py and typed_tables.py on one Spark of kctl. It
prints their outcomes as JSON. The locale is not UTF-8."""

import json
import os
import sys
from datetime import date, datetime
from pathlib import Path
from typing import Any

from kctl.jars.lock import jar_paths
from kctl_agent.spark.conf import SparkSettings
from kctl_agent.spark.session import session
from tests.acceptance import marking_transforms, typed_tables
from tests.conftest import BRIEF_JVM

CONF = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.extraJavaOptions": BRIEF_JVM,
}


def as_json(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime | date) else str(value)


def main(folder: Path) -> None:
    os.environ["LC_ALL"] = "C"
    avro = tuple(str(jar) for jar in jar_paths("spark") if "avro" in jar.name)
    spark = session(SparkSettings("batches", "local[1]", "512m", avro, CONF, folder, None))
    found = {
        "marking": marking_transforms.found(spark, folder / "marking"),
        "typed": typed_tables.found(spark, folder / "typed"),
    }
    sys.stdout.write(json.dumps(found, default=as_json))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
