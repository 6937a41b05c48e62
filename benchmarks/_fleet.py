"""One real broker and one real fleet (`kctl start`, one Spark worker) for the benchmarks that need them.

The worker has the settings that a user gets without asking, but for what a benchmark names.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any

from kctl.config.load import load
from kctl.demo.fleet import DemoFleet
from kctl.demo.kafka_broker import kafka_command
from kctl.jars.lock import jar_paths
from kctl.master import launch
from kctl_agent.rpc.wire import JsonObject
from tests.servers.kafka_broker import KafkaBroker

__all__ = [
    "GROUP",
    "TOPIC",
    "WORKER",
    "Fleet",
    "produce",
    "progress",
    "running_broker",
    "until",
    "worker_settings",
    "write_config",
]

TOPIC = "bench"
GROUP = "bench"
WORKER = "worker-0"
START_SECONDS = 90.0

TOML = """\
[fleet]
name = "bench"

[kafka]
bootstrap_servers = "{bootstrap_servers}"
group = "{group}"
topics = ["{topic}"]

[workers]
count = 1
{workers}

[http]
port = 0
"""


class Fleet(DemoFleet):
    """A fleet in a folder of its own; its topic must exist."""

    def __init__(self, directory: Path, bootstrap_servers: str, workers: str = "") -> None:
        """`workers` is more TOML for the section of that name."""
        super().__init__(directory)
        (directory / "logs").mkdir(parents=True)
        write_config(directory, bootstrap_servers, workers)

    def __enter__(self) -> Fleet:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def worker(self) -> dict[str, Any]:
        """The worker's own word; empty while it cannot answer. Raises KctlError when the master has ended."""
        self.check()
        answer = self.ask("workers")
        rows = {row["name"]: row for row in answer["rows"]} if answer else {}
        found: dict[str, Any] = rows.get(WORKER, {})
        return found

    def rows_stored(self) -> int:
        return int(self.worker().get("rows_total") or 0)

    def is_caught_up(self) -> bool:
        """The group has committed everything that the brokers have."""
        self.check()
        answer = self.ask("kafka_lag")
        return answer is not None and answer["total"] == 0 and not answer["unknown"]


def write_config(directory: Path, bootstrap_servers: str, workers: str = "") -> Path:
    path = directory / "kctl.toml"
    path.write_text(TOML.format(bootstrap_servers=bootstrap_servers, group=GROUP, topic=TOPIC, workers=workers))
    return path


def worker_settings(config: Path) -> JsonObject:
    """What the master writes to the stdin of `WORKER`, which gets a driver of its own;
    `kctl_agent.worker.settings.parse` reads it as JSON text."""
    return launch.worker_settings(
        load(config, {"KCTL_WORKERS_ENGINE": "own"}), WORKER, [str(jar) for jar in jar_paths("spark")]
    )


@contextmanager
def running_broker(properties: dict[str, str] | None = None) -> Iterator[tuple[KafkaBroker, Path]]:
    """A broker, and an empty folder that goes away with it."""
    place = Path(tempfile.mkdtemp(prefix="k", dir="/tmp"))
    try:
        with KafkaBroker(place / "broker", properties) as broker:
            yield broker, place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def produce(broker: KafkaBroker, count: int, of: int | Path) -> None:
    """Fill `TOPIC` by Kafka's own ProducerPerformance, as fast as it can, with so many random letters each or with
    lines of a file, drawn at random."""
    progress(f"producing {count:,} records")
    values = ("--payload-file", str(of)) if isinstance(of, Path) else ("--record-size", str(of))
    command = kafka_command(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", TOPIC, "--num-records", str(count), *values, "--throughput", "-1"),
        *("--producer-props", f"bootstrap.servers={broker.bootstrap_servers}", "batch.size=100000"),
    )
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)


def until(is_done: Callable[[], bool], what: str, seconds: float = START_SECONDS) -> None:
    """Poll ten times a second. Raises TimeoutError."""
    deadline = time.monotonic() + seconds
    while not is_done():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds:.0f} s: {what}")
        Event().wait(0.1)


def progress(text: str) -> None:
    """Progress goes to stderr: stdout is for the results."""
    print(f"  {text}", file=sys.stderr, flush=True)
