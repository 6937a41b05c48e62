"""`python jvm_locale.py FOLDER`, in a locale other than UTF-8, starts JVMs as kctl does and as a user's own code does.

kctl's JVM puts a batch into a table with a non-ASCII name. The script asks it and an executor's Python for their
locales, and prints the findings as JSON.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from pyspark import SparkContext

from kctl_agent.process.bootstrap import BootstrapError
from kctl_agent.spark.conf import SparkSettings
from kctl_agent.spark.session import session
from kctl_agent.storage.lake.folder import LocalFolder
from kctl_agent.storage.lake.storage import LakeStorage
from kctl_agent.worker.query.lake_put import LakePut
from tests.acceptance.lone_spark import lone_session
from tests.acceptance.marking_transforms import RECORDS, offsets, put


def of_kctl(folder: Path) -> dict[str, Any]:
    spark = session(SparkSettings("locale", "local[1]", "512m", (), {}, folder, None))
    table = folder / "m\u00fcll"
    put(spark, table, lambda frame: frame, name="")
    context: Any = SparkContext
    found = {
        "java": context._jvm.System.getProperty("sun.jnu.encoding"),
        "here": os.environ["LC_ALL"],
        "python": spark.sparkContext.parallelize([0], 1).map(lambda _: os.environ.get("LC_ALL")).collect(),
        "rows": offsets(table)["rows"],
    }
    spark.stop()
    context._gateway.shutdown()
    context._gateway.proc.stdin.close()
    context._gateway.proc.wait()
    context._gateway = context._jvm = None
    return found


def of_others(folder: Path) -> str | None:
    spark = lone_session(folder)
    put_ = LakePut(LakeStorage(LocalFolder(folder / "orders")), lambda frame: frame, "")
    try:
        put_.check(spark.range(1).selectExpr(*RECORDS))
    except BootstrapError as error:
        return str(error)
    finally:
        spark.stop()
    return None


def main(folder: Path) -> None:
    os.environ["LC_ALL"] = "C"
    print(json.dumps({"of_kctl": of_kctl(folder), "of_others": of_others(folder)}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
