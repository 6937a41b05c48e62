"""Runs queries one after another on a Spark of any version: `checkpoint_jobs.py BOOTSTRAP JARS [KEY=VALUE …]`.

Each line of JSON on stdin is a query; each line on stdout is its outcome. A query ends when it has read everything or
has failed, or with `forever` at the next line. Unless the query is to be attached, the script imports only PySpark, so
that another environment's Python can run it.
"""

import json
import os
import sys
from typing import Any


def session(jars: str, conf: list[str]) -> Any:
    from pyspark.sql import SparkSession

    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    builder = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.jars", jars)
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    )
    for each in conf:
        builder = builder.config(*each.partition("=")[::2])
    return builder.getOrCreate()


def source(spark: Any, bootstrap: str, topics: str, options: dict[str, str]) -> Any:
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    reader = reader.option("subscribe", topics).option("startingOffsets", "earliest")
    return reader.options(
        **{"kafka.default.api.timeout.ms": "10000", "kafka.request.timeout.ms": "5000", **options}
    ).load()


def query(spark: Any, bootstrap: str, job: dict[str, Any]) -> Any:
    from pyspark.sql.functions import window

    frames = [source(spark, bootstrap, topics, job.get("options", {})) for topics in job["topics"]]
    frame = frames[0]
    for other in frames[1:]:
        frame = frame.union(other)
    if "attach" in job:
        import kctl_agent

        kctl_agent.attach(spark, **job["attach"])
    if job.get("stateful") or job.get("windowed"):
        keys = [window("timestamp", "10 seconds")] if job.get("windowed") else []
        frame = frame.withWatermark("timestamp", "1 minute").groupBy(*keys, "partition").count()
    writer = frame.writeStream.format(job.get("sink", "noop")).option("checkpointLocation", job["checkpoint"])
    for key, value in job.get("write", {}).items():
        writer = writer.option(key, value)
    if job.get("stateful") or job.get("windowed"):
        writer = writer.outputMode("update")
    return writer.trigger(processingTime=job.get("every", "0 seconds")).start(job.get("path"))


def run(spark: Any, bootstrap: str, job: dict[str, Any]) -> dict[str, Any]:
    started, error = None, None
    try:
        started = query(spark, bootstrap, job)
        if job.get("forever"):
            print(json.dumps({"started": True}), flush=True)
            sys.stdin.readline()
            started.stop()
        else:
            started.processAllAvailable()
    except Exception as raised:
        error = str(raised)
    reports = [] if started is None else started.recentProgress
    batches = [each if type(each) is dict else json.loads(each.json) for each in reports]
    if started is not None:
        started.stop()
    return {
        "version": spark.version,
        "error": error,
        "batches": [
            {
                "batch": b["batchId"],
                "rows": b["numInputRows"],
                "from": b["sources"][0]["startOffset"],
                "to": b["sources"][0]["endOffset"],
            }
            for b in batches
        ],
    }


def main() -> None:
    bootstrap, jars, *conf = sys.argv[1:]
    spark = session(jars, conf)
    print(json.dumps({"started": True}), flush=True)
    for line in sys.stdin:
        print(json.dumps(run(spark, bootstrap, json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
