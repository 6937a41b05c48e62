"""kctl watches another Spark job from outside while it is killed, restarted and given partitions."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kctl.checkpoints.checkpoint import read
from kctl.checkpoints.places import place
from kctl.errors import CheckpointUnreadable
from kctl.jars.lock import jar_paths
from tests.acceptance.spark_jobs import SparkJobs
from tests.conftest import eventually
from tests.exporters import Exporter, running_exporter
from tests.servers import topics
from tests.servers.kafka_broker import KafkaBroker

pytestmark = [
    pytest.mark.real,
    pytest.mark.long,
    pytest.mark.timeout(400),
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]
SECONDS = 90.0
FILE = """
[exporter]
interval_seconds = 0.5
[status]
window_seconds = 5.0
[clusters.main]
bootstrap_servers = "{servers}"
[checkpoints.job]
uri = "{checkpoint}"
interval_seconds = 1.0
"""


class Job:
    """A query that goes on until it is killed, with state or without, and the exporter that watches it."""

    def __init__(self, broker: KafkaBroker, exporter: Exporter, checkpoint: Path) -> None:
        self.servers, self.exporter, self.checkpoint = broker.bootstrap_servers, exporter, checkpoint
        self.orders, self.refunds = (f"{checkpoint.parent.name}-{name}" for name in ("orders", "refunds"))
        self._spark: SparkJobs | None = None

    def start(self, **job: Any) -> None:
        jars = ",".join(map(str, jar_paths("spark")))
        self._spark = SparkJobs(self.servers, sys.executable, jars, self.checkpoint.with_name("log"))
        self._spark.begin(self.checkpoint, [self.orders, self.refunds], every="1 second", **job)

    def kill(self) -> None:
        if self._spark is not None:
            self._spark.kill()
            self._spark.__exit__(None, None, None)
        self._spark = None

    @property
    def group(self) -> dict[str, Any]:
        status, body = self.exporter.get("/api/v1/groups/job")
        return json.loads(body) if status == 200 else {}

    def lags(self) -> dict[tuple[str, int], int | None]:
        return {(row["topic"], row["partition"]): row["remaining_count"] for row in self.group.get("rows", ())}

    def has_read(self) -> int:
        """Messages that the job itself has read, by its checkpoint."""
        try:
            return sum(read(place(str(self.checkpoint))).offsets.values())
        except CheckpointUnreadable:
            return 0


@pytest.fixture
def job(broker: KafkaBroker, tmp_path: Path) -> Iterator[Job]:
    checkpoint = tmp_path / "checkpoint"
    file = tmp_path / "kctl.toml"
    file.write_text(FILE.format(servers=broker.bootstrap_servers, checkpoint=checkpoint))
    for name in (f"{tmp_path.name}-orders", f"{tmp_path.name}-refunds"):
        topics.create_topic(broker.bootstrap_servers, name, 2)
    with running_exporter(tmp_path, "-c", str(file)) as exporter:
        watched = Job(broker, exporter, checkpoint)
        yield watched
        watched.kill()


@pytest.mark.shows("kctl watches a job from outside while it is killed, restarted and given partitions")
@pytest.mark.parametrize("is_stateful", [False, True], ids=["plain", "windowed"])
def test_a_job_is_watched_while_it_is_killed_restarted_and_given_partitions(job: Job, is_stateful: bool) -> None:
    topics.produce(job.servers, job.orders, {0: 100, 1: 100})
    topics.produce(job.servers, job.refunds, {0: 10, 1: 10})
    job.start(stateful=is_stateful)
    keys = [(topic, number) for topic in (job.orders, job.refunds) for number in (0, 1)]
    eventually(lambda: job.lags() == dict.fromkeys(keys, 0), SECONDS, "it has read everything")
    for _ in range(4):  # batches from which kctl learns how often it commits
        before = job.has_read()
        topics.produce(job.servers, job.orders, {0: 5, 1: 5})
        eventually(lambda least=before + 10: job.has_read() >= least, SECONDS)
    eventually(lambda: job.lags() == dict.fromkeys(keys, 0), SECONDS, "it keeps up")
    assert job.group["status"] in ("ok", "idle")

    job.kill()
    topics.produce(job.servers, job.orders, {0: 7, 1: 3})
    eventually(lambda: job.lags() == {**dict.fromkeys(keys, 0), keys[0]: 7, keys[1]: 3}, SECONDS, "what waits")
    killed_at = time.monotonic()
    eventually(lambda: job.group.get("status") == "stopped", SECONDS, "it is stopped")
    print(f"stopped after {time.monotonic() - killed_at:.0f} s", file=sys.stderr)

    topics.add_partitions(job.servers, job.orders, 3)
    job.start(stateful=is_stateful)
    topics.produce(job.servers, job.orders, {2: 4})
    eventually(lambda: job.lags() == dict.fromkeys([*keys, (job.orders, 2)], 0), SECONDS, "it goes on, all are read")
    eventually(lambda: job.group.get("status") in ("ok", "idle"), SECONDS)
    assert os.listdir(job.checkpoint / "offsets"), "nothing in it was removed"
