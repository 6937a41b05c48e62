"""kctl watches Spark jobs that it does not run, under load, while they are killed, stopped, restarted and given
partitions. What each batch has really read is in Spark's event log."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import datetime
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import pyspark
import pytest
from kafka import KafkaConsumer, TopicPartition

from kctl.checkpoints.entries import Offsets
from kctl.demo.run import Producer
from tests.acceptance.fleets import START_SECONDS
from tests.acceptance.spark_jobs import ScalaJob, SparkJobs, SparkProcess
from tests.checkpoint_faults import newest
from tests.conftest import eventually, on_this_machine
from tests.exporters import Exporter, running_exporter
from tests.servers import topics
from tests.servers.kafka_broker import KafkaBroker

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
FILE = """
[exporter]
interval_seconds = 0.5
[status]
window_seconds = 5.0
batch_limit_seconds = 10.0
[clusters.main]
bootstrap_servers = "{servers}"
[checkpoints.job]
uri = "{checkpoint}"
interval_seconds = 1.0
"""
STOPPED_SECONDS = 20.0  # the limit of a killed batch, the window, and the two intervals, with some seconds to spare
EVENT_LOG = ("enabled=true", "compress=false", "rolling.enabled=false")
RATE = 100.0
ASYNCHRONOUS = {"asyncProgressTrackingEnabled": "true", "asyncProgressTrackingCheckpointIntervalMs": "1000"}


class Batch(NamedTuple):
    """A batch in Spark's event log: its start, its `endOffset`, and when it was done, in seconds since 1970."""

    start: Offsets
    end: Offsets
    done_at: float


def batches(events: Path) -> list[Batch]:
    lines = [line for file in events.iterdir() for line in file.read_text().splitlines(keepends=True)]
    whole = [json.loads(line)["progress"] for line in lines if "QueryProgressEvent" in line and line.endswith("\n")]
    return [Batch(_merged(each, "startOffset"), _merged(each, "endOffset"), _done_at(each)) for each in whole]


def _merged(progress: dict[str, Any], name: str) -> Offsets:
    sources = [json.loads(each[name] or "{}") for each in progress["sources"]]
    return {(topic, int(number)): at for each in sources for topic, of in each.items() for number, at in of.items()}


def _done_at(progress: dict[str, Any]) -> float:
    began = datetime.fromisoformat(progress["timestamp"]).timestamp()
    return float(began + progress["durationMs"]["triggerExecution"] / 1000)


class Seen(NamedTuple):
    offsets: Offsets
    read_at: float
    starts: int


class Job:
    def __init__(self, broker: KafkaBroker, exporter: Exporter, folder: Path, kind: Kind) -> None:
        self.servers, self._exporter, self._folder, self._kind = broker.bootstrap_servers, exporter, folder, kind
        self.checkpoint, self.log = folder / "checkpoint", folder / "log"
        self.topics = [f"{folder.name}-{name}" for name in ("orders", "refunds")]
        self._partitions = dict.fromkeys(self.topics, 2)
        self._starts: list[Path] = []
        self._seen: list[Seen] = []
        self._running = ExitStack()
        self._loads: list[Producer] = []
        for topic in self.topics:
            topics.create_topic(self.servers, topic, 2)
            self._loads.append(Producer(self.servers, topic, 2, RATE))
            self._loads[-1].start()

    def start(self) -> None:
        events = self._folder / f"events-{len(self._starts)}"
        events.mkdir()
        self._starts.append(events)
        conf = [f"spark.eventLog.{each}" for each in (*EVENT_LOG, f"dir={events.as_uri()}")]
        self._spark = self._running.enter_context(self._kind(self, conf))

    def close(self) -> None:
        self.end_load()
        if self._starts:
            self._spark.kill()
        self._running.close()

    def end_load(self) -> None:
        while self._loads:
            self._loads.pop().stop()

    @property
    def batches(self) -> list[Batch]:
        return batches(self._starts[-1])

    @property
    def group(self) -> dict[str, Any]:
        status, body = self._exporter.get("/api/v1/groups/job")
        return json.loads(body) if status == 200 else {}

    def ends(self) -> Offsets:
        keys = [TopicPartition(topic, each) for topic, count in self._partitions.items() for each in range(count)]
        with closing(KafkaConsumer(bootstrap_servers=self.servers, enable_auto_commit=False)) as consumer:
            return {(key.topic, key.partition): at for key, at in consumer.end_offsets(keys).items()}

    def read(self) -> Seen:
        """Waits for offsets newer than this call. The log ends before and after the answer bound each lag."""
        before, asked = self.ends(), time.time()

        def newer() -> Seen | None:
            at, rows = time.time(), self.group.get("rows", ())
            if len(rows) < len(before) or at - max(row["age_seconds"] for row in rows) < asked:
                return None
            after = self.ends()
            for row in rows:
                key, end, current = (row["topic"], row["partition"]), row["kafka_max_offset"], row["current_offset"]
                assert before[key] <= end <= after[key]
                assert row["remaining_count"] == end - (current or 0)
            current = {(row["topic"], row["partition"]): row["current_offset"] for row in rows}
            return Seen({key: at for key, at in current.items() if at is not None}, asked, len(self._starts))

        found: Seen = eventually(newer, START_SECONDS, "the group is read again")
        return found

    def _newest(self, entries: str) -> int:
        return int(newest(self.checkpoint / entries).name)

    def watch(self) -> None:
        eventually(lambda: self.group.get("status") == "ok", START_SECONDS, "it keeps up")
        seen = list[Seen]()
        while len({tuple(each.offsets.items()) for each in seen}) < 5:
            seen.append(self.read())
        self._seen += seen

    def check_seen(self) -> None:
        """All offsets seen are those of the newest done batch, with a tolerance of 0.1 s between clocks."""
        for seen in self._seen:
            done = []
            for events in self._starts[: seen.starts]:
                first, *_ = found = batches(events)
                done += [first._replace(end=first.start, done_at=inf), *found]
            last = max((number for number, batch in enumerate(done) if batch.end == seen.offsets), default=None)
            assert last is not None, (seen, done)
            missed = [batch for batch in done[last + 1 :] if batch.done_at < seen.read_at - 0.1]
            assert not missed, (seen, missed)

    def add_partition(self) -> None:
        orders = self.topics[0]
        topics.add_partitions(self.servers, orders, 3)
        self._partitions[orders] = 3
        topics.produce(self.servers, orders, {2: 4})
        eventually(lambda: self.read().offsets.get((orders, 2)) == 4, START_SECONDS, "the new partition is read")

    def is_stopped(self, *, is_killed: bool) -> Offsets:
        """Ends the job under load, a killed one during a batch. Returns the offsets at which kctl shows its end."""
        if is_killed:
            eventually(lambda: self._newest("offsets") > self._newest("commits"), START_SECONDS, "a batch runs")
            self._spark.kill()
        else:
            self._spark.stop()
        self._running.close()
        ended = time.monotonic()
        eventually(lambda: self.group.get("status") == "stopped", on_this_machine(STOPPED_SECONDS), "it is stopped")
        print(f"{self.topics[0]}: stopped after {time.monotonic() - ended:.1f} s", file=sys.stderr)
        return self.read().offsets


Kind: TypeAlias = Callable[[Job, list[str]], SparkProcess]


def in_python(job: Job, conf: list[str], version: str = pyspark.__version__, **query: Any) -> SparkJobs:
    spark = SparkJobs(job.servers, job.log, version, conf)
    spark.begin(job.checkpoint, query.pop("sources", [",".join(job.topics)]), every="1 second", **query)
    return spark


def of_two_sources(job: Job, conf: list[str]) -> SparkJobs:
    return in_python(job, conf, sources=job.topics)


def in_scala(job: Job, conf: list[str]) -> ScalaJob:
    return ScalaJob(job.servers, job.log, conf, job.checkpoint, job.topics)


KINDS: dict[str, Kind] = {
    "two sources": of_two_sources,
    "windows": partial(in_python, windowed=True),
    "Scala": in_scala,
    "PySpark 3.5": partial(in_python, version="3.5.7", windowed=True),
    "asynchronous progress": partial(in_python, write=ASYNCHRONOUS),
}


@contextmanager
def watched(broker: KafkaBroker, folder: Path, kind: Kind) -> Iterator[Job]:
    file = folder / "kctl.toml"
    file.write_text(FILE.format(servers=broker.bootstrap_servers, checkpoint=folder / "checkpoint"))
    with running_exporter(folder, "-c", str(file)) as exporter:
        job = Job(broker, exporter, folder, kind)
        try:
            yield job
        finally:
            job.close()


@pytest.mark.shows("under load a Spark job's shown lag is that of its own `endOffset`, until it is stopped and after")
def test_the_lag_of_a_job_is_that_of_its_end_offsets(broker: KafkaBroker, tmp_path: Path) -> None:
    with watched(broker, tmp_path, KINDS["windows"]) as job:
        job.start()
        job.watch()
        shown = job.is_stopped(is_killed=False)

        assert shown == job.batches[-1].end
        job.check_seen()


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.shows(
    "kctl watches jobs of PySpark 3.5 and 4.2 and of Scala, with windows, two sources and asynchronous progress "
    "tracking, while they are killed, stopped, restarted and given partitions"
)
def test_a_job_is_watched_through_kills_and_restarts(name: str, broker: KafkaBroker, tmp_path: Path) -> None:
    with watched(broker, tmp_path, KINDS[name]) as job:
        job.start()
        job.watch()
        job.add_partition()
        for is_killed in (True, False):
            shown = job.is_stopped(is_killed=is_killed)
            job.start()
            job.watch()
            assert job.batches[0].start == shown, "Spark resumes where kctl has shown"
        if name != "asynchronous progress":  # without load its last batches would be written only with the next one
            job.end_load()
            eventually(lambda: job.read().offsets == job.ends(), START_SECONDS, "it has read everything")
            job.check_seen()
