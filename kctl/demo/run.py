"""`kctl demo`: a real broker, a producer, a fleet of Spark workers, and an audit of what was stored."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from kctl.demo.audit import Audit, audit
from kctl.demo.broker import KafkaBroker
from kctl.demo.fleet import DemoFleet, lay_out
from kctl.demo.producer import Producer
from kctl.demo.screen import Screen
from kctl.demo.topics import create_topic
from kctl.errors import KctlError
from kctl_agent.storage.file import FileStorage

__all__ = ["main"]

TOPIC = "demo"
REFRESH_SECONDS = 0.5
DRAIN_SECONDS = 120.0
START_SECONDS = 300.0


@dataclass
class Progress:
    """What was seen while the demo ran."""

    started_at: float = field(default_factory=time.monotonic)
    largest_lag: int | None = None
    seconds_to_first_batch: float | None = None
    committed: int = 0

    def take(self, offsets: list[dict[str, Any]], workers: list[dict[str, Any]]) -> None:
        lag = _sum_known(row["remaining_count"] for row in offsets)
        if lag is not None:
            self.largest_lag = max(self.largest_lag or 0, lag)
        self.committed = sum(row["current_offset"] or 0 for row in offsets)
        if self.seconds_to_first_batch is None and any(row["batches_total"] for row in workers):
            self.seconds_to_first_batch = time.monotonic() - self.started_at


class Interrupts:
    """The first Ctrl-C (or SIGTERM) ends the load and drains, the second ends the draining, both in order."""

    def __init__(self) -> None:
        self.count = 0
        self._interrupted = threading.Event()

    def __call__(self, _signal: int, _frame: FrameType | None) -> None:
        self.count += 1
        self._interrupted.set()

    def pause(self, seconds: float) -> None:
        """Wait, but no longer than to the next interrupt."""
        self._interrupted.wait(seconds)
        self._interrupted.clear()

    @contextmanager
    def taken(self) -> Iterator[Interrupts]:
        previous = {number: signal.signal(number, self) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield self
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)


def main(
    *, workers: int, partitions: int, rate: float, seconds: float | None, output: str, directory: Path | None
) -> int:
    """Run the demo until `seconds` are over or Ctrl-C; print the summary; 0 only when all is stored once.

    Raises:
        KctlError: a part cannot be started; what ran until then is stopped.
    """
    place = directory.absolute() if directory else Path(tempfile.mkdtemp(prefix="kctl-demo-"))
    lay_out(place)
    with Interrupts().taken() as interrupts, Screen(to_stderr=output == "json") as screen:
        summary = _demo(place, workers, partitions, rate, seconds, interrupts, screen)
    passed = summary["lost"] == summary["duplicated"] == 0 and summary["stored"] == summary["produced"]
    _print(summary, output, passed, place)
    if passed and directory is None:
        shutil.rmtree(place, ignore_errors=True)
    return 0 if passed else 1


def _demo(
    place: Path,
    workers: int,
    partitions: int,
    rate: float,
    seconds: float | None,
    interrupts: Interrupts,
    screen: Screen,
) -> dict[str, Any]:
    screen.say(f"demo in {place}")
    fleet, progress = DemoFleet(place), Progress()
    with KafkaBroker(place / "broker") as broker:
        screen.say(f"Kafka broker answers on {broker.bootstrap_servers} ({_since(progress)})")
        create_topic(broker.bootstrap_servers, TOPIC, partitions)
        fleet.configure(bootstrap_servers=broker.bootstrap_servers, topic=TOPIC, workers=workers)
        producer = Producer(broker.bootstrap_servers, TOPIC, partitions, rate)
        try:
            fleet.start()
            producer.start()
            screen.say(
                f"{workers} workers start; ask them from another terminal: {_command()} -c {fleet.config} rpc kafka_lag"
            )
            _watch(fleet, producer, progress, seconds, interrupts, screen)
            screen.say("the producer stops; what it has produced is still being stored")
            producer.stop()
            _drain(fleet, producer, progress, interrupts, screen)
        finally:
            producer.stop()
            fleet.stop()
    produced = {tuple(tp): count for tp, count in producer.acknowledged.items()}
    found = audit(FileStorage(place / "data" / "storage.sqlite").blocks(), produced)
    return _summary(found, progress, producer, workers, partitions)


def _watch(
    fleet: DemoFleet,
    producer: Producer,
    progress: Progress,
    seconds: float | None,
    interrupts: Interrupts,
    screen: Screen,
) -> None:
    """Until the time is over; the clock of `--for` begins with the first batch, so that start-up does not count."""
    began: float | None = None
    while not interrupts.count:
        _refresh(fleet, producer, progress, interrupts, screen)
        if began is None and progress.seconds_to_first_batch is not None:
            began = time.monotonic()
            screen.say(f"the first batch is stored ({_since(progress)}); metrics on {fleet.url()}/metrics")
        if began is None and time.monotonic() - progress.started_at > START_SECONDS:
            raise KctlError(f"no batch within {START_SECONDS:.0f} s; the logs are in {fleet.directory / 'logs'}")
        if seconds is not None and began is not None and time.monotonic() - began >= seconds:
            return


def _drain(fleet: DemoFleet, producer: Producer, progress: Progress, interrupts: Interrupts, screen: Screen) -> None:
    """Until everything that was produced is committed, a further Ctrl-C, or the deadline."""
    deadline, already = time.monotonic() + DRAIN_SECONDS, interrupts.count
    while progress.committed < producer.total and interrupts.count <= already and time.monotonic() < deadline:
        _refresh(fleet, producer, progress, interrupts, screen)


def _refresh(fleet: DemoFleet, producer: Producer, progress: Progress, interrupts: Interrupts, screen: Screen) -> None:
    fleet.check()
    offsets, workers = fleet.ask("offset_checker"), fleet.ask("workers")
    if offsets is not None and workers is not None:
        progress.take(offsets["rows"], workers["rows"])
        lag = _sum_known(row["remaining_count"] for row in offsets["rows"])
        told = "-" if lag is None else f"{lag:,}"
        head = f"produced {producer.total:,} · committed {progress.committed:,} · lag {told} · {_since(progress)}"
        screen.show(head, offsets["rows"], workers["rows"])
    interrupts.pause(REFRESH_SECONDS)


def _summary(found: Audit, progress: Progress, producer: Producer, workers: int, partitions: int) -> dict[str, Any]:
    first = progress.seconds_to_first_batch
    return {
        "produced": found.produced,
        "stored": found.stored,
        "lost": found.lost,
        "duplicated": found.duplicated,
        "largest_lag": progress.largest_lag,
        "seconds_to_first_batch": None if first is None else round(first, 2),
        "seconds": round(time.monotonic() - progress.started_at, 1),
        "workers": workers,
        "partitions": partitions,
        "not_acknowledged": producer.failed,
    }


def _print(summary: dict[str, Any], output: str, passed: bool, place: Path) -> None:
    if output == "json":
        print(json.dumps(summary), flush=True)  # noqa: T201
        return
    for name in ("produced", "stored", "lost", "duplicated", "largest_lag", "seconds_to_first_batch"):
        value = summary[name]
        print(f"{name.replace('_', '-'):<24}{'-' if value is None else f'{value:,}':>12}")  # noqa: T201
    if not passed:
        print(f"not everything that was produced is stored exactly once; all of the demo is kept in {place}")  # noqa: T201


def _sum_known(figures: Iterable[int | None]) -> int | None:
    """None when nothing is known: a lag that nobody knows yet is not a lag of 0."""
    known = [figure for figure in figures if figure is not None]
    return sum(known) if known else None


def _command() -> str:
    """How this very command line is called from another terminal: after `make demo` no `kctl` is on the PATH."""
    own = Path(sys.argv[0])
    found = shutil.which("kctl")
    if own.name != "kctl" or (found and Path(found).resolve() == own.resolve()):
        return "kctl"
    return os.path.relpath(own)


def _since(progress: Progress) -> str:
    return f"{time.monotonic() - progress.started_at:.1f} s"
