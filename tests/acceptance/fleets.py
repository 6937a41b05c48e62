"""A fleet of real Spark workers with its own topic and group, for the acceptance tests."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import uuid
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
from kafka import KafkaProducer, TopicPartition

from kctl.config.load import load
from kctl.demo.audit import Audit, audit, places
from kctl.demo.fleet import DemoFleet
from kctl.demo.run import Producer
from kctl_agent.storage.file import FileStorage
from tests.command_lines import run_process
from tests.conftest import BRIEF_JVM, eventually
from tests.processes import alive
from tests.servers import topics
from tests.servers.kafka_broker import KafkaBroker
from tests.servers.kafka_cluster import KafkaCluster

START_SECONDS = 90.0
SETTLE_SECONDS = 60.0
BATCH_SECONDS = "1.0"  # start to start: a worker under load without a pause takes a core from the other tests
ENGINE = os.environ.get("KCTL_TEST_ENGINE", "shared")  # `own` gives each worker a Spark driver


TOML = """\
[fleet]
name = "{topic}"

[kafka]
bootstrap_servers = "{bootstrap_servers}"
group = "{topic}"
topics = ["{topic}"]
session_timeout_seconds = 6.0
{kafka}

[workers]
count = {workers}
backoff_min_seconds = {backoff}
trigger_seconds = {trigger}
engine = "{engine}"
{workers_more}

[spark]
master = "{spark_master}"

[spark.conf]
"spark.driver.extraJavaOptions" = "{java}"
{spark_conf}

[storage]
{storage}

[sinkers]
{sinkers}

[http]
port = 0
{http}
"""
DEFAULTS: dict[str, object] = {
    **dict.fromkeys(("kafka", "workers_more", "storage", "sinkers", "spark_conf", "http"), ""),
    "java": BRIEF_JVM,
    "backoff": "0.2",
    "engine": ENGINE,
    "trigger": BATCH_SECONDS,
    "spark_master": "local[1]",
}


class Fleet(DemoFleet):
    def __init__(
        self,
        directory: Path,
        broker: KafkaBroker | KafkaCluster,
        *,
        partitions: int,
        workers: int,
        beside: Fleet | None = None,
        topic_configs: Any = None,
        **more: str,
    ) -> None:
        """With `beside`, it uses another fleet's topic and group. `more` is TOML for further sections. Its
        `bootstrap_servers` is the broker's address for the fleet if it differs from the test's."""
        super().__init__(directory)
        (directory / "logs").mkdir()
        self.broker = broker
        self.topic: str = beside.topic if beside else f"t{uuid.uuid4().hex[:8]}"
        self.group = self.topic
        self.partitions = partitions
        self.sent: Counter[TopicPartition] = Counter()
        self._loads: list[Producer] = []
        if beside is None:
            topics.create_topic(broker.bootstrap_servers, self.topic, partitions, topic_configs)
        own = {"topic": self.topic, "workers": workers, "bootstrap_servers": broker.bootstrap_servers}
        self.config.write_text(TOML.format_map(DEFAULTS | own | more))

    @property
    def storage(self) -> FileStorage:
        return FileStorage(self.directory / "data" / "storage.sqlite")

    def kctl(self, *arguments: str, exit_code: int | None = 0) -> subprocess.CompletedProcess[str]:
        done = run_process("-c", str(self.config), *arguments)
        assert exit_code is None or done.returncode == exit_code, f"{done.returncode}: {done.stdout}{done.stderr}"
        return done

    def rpc(self, command: str) -> Any:
        return json.loads(self.kctl("rpc", command, "-o", "json", exit_code=None).stdout)

    @property
    def has_engine(self) -> bool:
        return load(self.config, os.environ).workers.engine == "shared"

    def processes(self) -> dict[str, dict[str, Any]]:
        answer = self.ask("workers")
        return {row["name"]: row for row in answer["rows"]} if answer else {}

    def workers(self) -> dict[str, dict[str, Any]]:
        return {name: row for name, row in self.processes().items() if row["kind"] != "engine"}

    def engine(self) -> dict[str, Any]:
        return self.processes().get("engine", {})

    def jvm(self, worker: str = "worker-0") -> psutil.Process:
        driver = "engine" if self.has_engine else worker
        found = []
        for child in psutil.Process(self.processes()[driver]["pid"]).children(recursive=True):
            with suppress(psutil.NoSuchProcess):  # idle Pythons of executors end
                if child.name() == "java":
                    found.append(child)
        [jvm] = found
        return jvm

    def family(self, *names: str) -> list[psutil.Process]:
        """The named processes (by default all supervised ones) and their descendants."""
        rows = self.processes()
        pids = [row["pid"] for name, row in rows.items() if row["pid"] is not None and (name in names or not names)]
        supervised = [psutil.Process(pid) for pid in pids]
        return alive(each for process in supervised for each in (process, *process.children(recursive=True)))

    def events(self) -> list[dict[str, Any]]:
        return [event for row in self.workers().values() for event in row["events"]]

    def offsets(self) -> dict[int, dict[str, Any]]:
        answer = self.ask("offset_checker")
        return {row["partition"]: row for row in answer["rows"]} if answer else {}

    def start(self, *until_running: str) -> None:
        super().start()
        if until_running:
            eventually(lambda: self.is_running(*until_running), START_SECONDS, f"{until_running} run")

    def is_running(self, *names: str) -> bool:
        self.check()
        workers = self.workers()
        return all(workers.get(name, {}).get("state") == "running" for name in names)

    def kill_worker(self, name: str = "worker-0") -> None:
        pid = self.workers()[name]["pid"]
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: self.is_running(name) and self.workers()[name]["pid"] != pid, START_SECONDS, "it runs again")

    def owners(self) -> set[str | None]:
        return {row["worker"] for row in self.offsets().values()}

    def is_caught_up(self) -> bool:
        self.check()
        committed = {p: row["current_offset"] for p, row in self.offsets().items()}
        return len(committed) == self.partitions and all(
            committed[p] == self.sent[TopicPartition(self.topic, p)] for p in range(self.partitions)
        )

    def send(self, count: int, value: bytes = b"x" * 100) -> None:
        with KafkaProducer(bootstrap_servers=self.broker.bootstrap_servers, acks="all") as producer:
            for number in range(count):
                producer.send(self.topic, value, key=str(number).encode(), partition=number % self.partitions)
            producer.flush()
        self.sent.update(TopicPartition(self.topic, n % self.partitions) for n in range(count))

    def send_to(self, *partitions: int, count: int = 1, value: bytes = b"x") -> None:
        with KafkaProducer(bootstrap_servers=self.broker.bootstrap_servers, acks="all", linger_ms=20) as producer:
            for _ in range(count):
                for partition in partitions:
                    producer.send(self.topic, value, partition=partition)
            producer.flush()
        self.sent.update({TopicPartition(self.topic, partition): count for partition in partitions})

    def has_committed(self, *partitions: int) -> bool:
        self.check()
        found = {number: row["current_offset"] for number, row in self.offsets().items()}  # empty without an answer
        return all(found.get(each) == self.sent[TopicPartition(self.topic, each)] for each in partitions)

    def load(self, rate: float = 1000.0) -> Producer:
        producer = Producer(self.broker.bootstrap_servers, self.topic, self.partitions, rate)
        producer.start()
        self._loads.append(producer)
        return producer

    def finish(self, producer: Producer) -> None:
        self._loads.remove(producer)
        producer.stop()
        assert producer.not_acknowledged == 0
        self.sent.update(producer.acknowledged)

    def dead_letters(self) -> list[dict[str, Any]]:
        listed = json.loads(self.kctl("storage", "dead", "list", "-o", "json", "--limit", "1000").stdout)["rows"]
        return sorted(listed, key=lambda row: (row["partition"], row["offset"]))

    def audit(self) -> Audit:
        return audit(places(self.open_storage().blocks()), {tuple(tp): count for tp, count in self.sent.items()})

    def stored_once(self) -> int:
        found = self.audit()
        assert (found.lost, found.duplicated, found.stored) == (0, 0, self.sent.total()), found
        return found.stored

    def log_tail(self) -> str:
        texts = [path.read_text(errors="replace").splitlines()[-15:] for path in sorted(self.directory.glob("logs/*"))]
        return "\n".join(line[:300] for lines in texts for line in lines)

    @property
    def has_ended(self) -> bool:
        return self._process is not None and self._process.poll() is not None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self._process = None

    def close(self) -> None:
        for producer in self._loads:
            producer.stop(5)
        self.stop()


MakeFleet = Callable[..., Fleet]


def session_of(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None
