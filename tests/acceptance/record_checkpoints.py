"""Records the checkpoints of tests/unit/recorded/checkpoints with a Spark of any version and a running broker.

Usage: python -m tests.acceptance.record_checkpoints BOOTSTRAP VERSION FOLDER [KEY=VALUE …]
"""

import sys
from pathlib import Path

from tests.acceptance.spark_jobs import SparkJobs
from tests.servers.topics import create_topic, delete_topic, produce

TOPICS = ("orders", "payments")


def record(bootstrap: str, jobs: SparkJobs, folder: Path) -> None:
    for topic in TOPICS:
        create_topic(bootstrap, topic, 2)
    for count in (20, 10, 6):
        for topic in TOPICS:
            produce(bootstrap, topic, {0: count // 2, 1: count // 2})
        jobs.run(folder / "plain", ["orders"])
        jobs.run(folder / "two_sources", ["orders", "payments"])
        jobs.run(folder / "stateful", ["orders"], stateful=True)
    pace = {"options": {"maxOffsetsPerTrigger": "4"}}
    asynchronous = {"asyncProgressTrackingEnabled": "true", "asyncProgressTrackingCheckpointIntervalMs": "700"}
    jobs.run(folder / "asynchronous", ["orders"], write=asynchronous, **pace)
    for topic in TOPICS:
        delete_topic(bootstrap, topic)


if __name__ == "__main__":
    servers, version, where, *conf = sys.argv[1:]
    with SparkJobs(servers, Path(where) / "spark.log", version, conf) as started:
        record(servers, started, Path(where))
