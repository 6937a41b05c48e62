"""Runs `kctl demo`: a real broker, a producer, a fleet of Spark workers, and an audit of the stored messages."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Any

from kafka.errors import KafkaError

from kctl.children import PRIVATE
from kctl.demo.audit import Audit, audit, audit_table, handled
from kctl.demo.fleet import GROUP, DemoFleet, lay_out
from kctl.demo.kafka_broker import KafkaBroker
from kctl.demo.producer import Producer
from kctl.demo.screen import Screen
from kctl.demo.summary import DemoOptions, DemoProgress, has_passed, show, summary
from kctl.errors import KctlError, PortTaken, StartError
from kctl.jars.fetcher import fetch, shown_on
from kctl.jars.java import java_command
from kctl.kafka.admin import create_topic
from kctl.kafka.client.access import plain
from kctl.kafka.client.connection import ClusterConnection
from kctl.master.exit_reasons import cause
from kctl_agent.errors import AgentError
from kctl_agent.rpc.messages import number_of
from kctl_agent.storage.chunk import Binding
from kctl_agent.storage.kinds import KINDS

TOPIC = "demo"
REFRESH_SECONDS = 0.5
DRAIN_SECONDS = 120.0
START_SECONDS = 300.0
TOPIC_SECONDS = 30.0


class PartEnded(Exception):
    """A process of the demo has ended by itself; the message names it, its pid and how."""


@dataclass(frozen=True, slots=True)
class DemoParts:
    broker: KafkaBroker
    master: DemoFleet

    def ended(self) -> str | None:
        """Returns a sentence on a process that has ended. The broker comes first, because the master depends on it."""
        if (code := self.broker.ended()) is not None:
            return f"the broker (pid {self.broker.pid}) has ended: {cause(code)}"
        if (code := self.master.ended()) is not None:
            return f"the master (pid {self.master.pid}) has ended: {cause(code)}; its log: {self.master.last_lines()}"
        return None

    def check(self) -> None:
        if (ended := self.ended()) is not None:
            raise PartEnded(ended)


def bring_parts(storage: str) -> None:
    """Fetches missing jars, with progress on stderr. Raises StartError."""
    if KINDS[storage].is_table and find_spec("deltalake") is None:
        raise StartError("`--storage lake` needs deltalake: pip install deltalake, or leave `--storage lake` away")
    java_command()
    fetch(progress=partial(shown_on, sys.stderr))


class Interrupts:
    """Ctrl-C or SIGTERM: the first ends the load and drains, the second ends the draining, both in order. Before
    `is_something_to_end` it raises KeyboardInterrupt."""

    def __init__(self) -> None:
        self.count = 0
        self.is_something_to_end = False
        self._interrupted = threading.Event()

    def __call__(self, _signal: int, _frame: FrameType | None) -> None:
        if not self.is_something_to_end:
            raise KeyboardInterrupt
        self.count += 1
        self._interrupted.set()

    def pause(self, seconds: float) -> None:
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


def main(options: DemoOptions, output: str, directory: Path | None) -> int:
    """Runs the demo until its time is over or Ctrl-C, and prints the summary; returns 0 only if everything was stored
    once and, with sinkers, handled. Raises KctlError if a part is missing or does not start."""
    bring_parts(options.storage)
    os.umask(PRIVATE)
    place = directory.absolute() if directory else Path(tempfile.mkdtemp(prefix="kctl-demo-"))
    lay_out(place)
    screen = Screen(to_stderr=output == "json")
    with Interrupts().taken() as interrupts, ExitStack() as stack:
        try:
            summary = _demo(place, options, interrupts, screen, stack)
        except KeyboardInterrupt:
            screen.print_line("interrupted before anything was produced")
            if directory is None:
                stack.callback(shutil.rmtree, place, ignore_errors=True)
            raise
        except BaseException:
            screen.print_line(f"all of the demo is kept in {place}")
            raise
    passed = has_passed(summary, options)
    show(summary, output, place, is_handled=options.is_handled, passed=passed)
    if passed and directory is None:
        shutil.rmtree(place, ignore_errors=True)
    return 0 if passed else 1


def broker_only(directory: Path | None, port: int | None = None) -> int:
    """Runs a broker until Ctrl-C; `directory` keeps its topics. Raises KctlError."""
    with socket.socket() as probe:
        if port is not None and (port > 65535 or probe.connect_ex(("127.0.0.1", port)) == 0):
            raise PortTaken(f"--port {port} cannot be used, or is taken: choose another")
    bring_parts("file")
    os.umask(PRIVATE)
    with ExitStack() as stack:
        place = directory or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kctl-demo-")))
        interrupts = stack.enter_context(Interrupts().taken())
        broker = stack.enter_context(KafkaBroker(place / "broker", port=port))
        interrupts.is_something_to_end = True
        parts = DemoParts(broker=broker, master=DemoFleet(place))
        sys.stdout.write(f"Kafka broker answers on {broker.bootstrap_servers}; Ctrl-C ends it\n")
        sys.stdout.flush()
        while not interrupts.count:
            if (ended := parts.ended()) is not None:
                raise KctlError(ended)
            interrupts.pause(REFRESH_SECONDS)
    return 0


def _demo(
    place: Path, options: DemoOptions, interrupts: Interrupts, screen: Screen, stack: ExitStack
) -> dict[str, Any]:
    screen.print_line(f"demo in {place}")
    fleet, progress = DemoFleet(place), DemoProgress()
    broker = stack.enter_context(KafkaBroker(place / "broker"))
    parts = DemoParts(broker=broker, master=fleet)
    screen.print_line(f"Kafka broker answers on {broker.bootstrap_servers} ({_since(progress)})")
    try:
        fleet.configure(
            bootstrap_servers=broker.bootstrap_servers,
            topic=TOPIC,
            workers=options.workers,
            storage=options.storage,
            sinkers=options.sinkers,
        )
        interrupts.is_something_to_end = True
        stack.callback(fleet.stop)
        fleet.start()  # its processes take seconds to start; the topic is made meanwhile
        with ClusterConnection(plain(broker.bootstrap_servers), TOPIC_SECONDS) as connection:
            connection.open()
            create_topic(connection, TOPIC, options.partitions, None, {})
        owner = Binding(GROUP, broker.cluster_id) if KINDS[options.storage].is_table else None
        producer = Producer(broker.bootstrap_servers, TOPIC, options.partitions, options.rate)
    except (KafkaError, KctlError) as error:
        if (ended := parts.ended()) is not None:
            raise KctlError(ended) from error
        raise KctlError(f"the broker on {broker.bootstrap_servers} does not do what it is asked: {error}") from error
    ended_by_itself = None
    try:
        _load(_Run(fleet, producer, progress, options, interrupts, screen, parts))
    except PartEnded as error:
        ended_by_itself = str(error)
        screen.print_line(f"{ended_by_itself}; the demo ends")
    finally:
        producer.stop(0 if parts.ended() else 30)
        fleet.stop()
    found = _audit(fleet, producer, owner, ended_by_itself)
    return summary(found, progress, producer.total, producer.not_acknowledged, options, ended_by_itself)


@dataclass(frozen=True, slots=True)
class _Run:
    fleet: DemoFleet
    producer: Producer
    progress: DemoProgress
    options: DemoOptions
    interrupts: Interrupts
    screen: Screen
    parts: DemoParts


def _load(run: _Run) -> None:
    """Returns when everything produced is stored and handled. Raises PartEnded."""
    options, screen = run.options, run.screen
    run.producer.start()
    sinkers = f" and {number_of(options.sinkers, 'sinker')}" if options.sinkers else ""
    started = number_of(options.workers, "worker") + sinkers
    screen.print_line(
        f"starting {started}; for a live table, in another terminal: {_command()} -c {run.fleet.config} top"
    )
    _watch(run)
    run.parts.check()
    handled_too = " and handled" if options.is_handled else ""
    screen.print_line(f"the producer stops; what it has produced is still being stored{handled_too}")
    run.producer.stop()
    _drain(run)
    if options.sinkers:
        _empty(run)


def _audit(fleet: DemoFleet, producer: Producer, owner: Binding | None, ended: str | None) -> Audit | None:
    """`owner` is that of a table. Returns None if a part has ended and the storage is unreadable."""
    produced = {tuple(tp): count for tp, count in producer.acknowledged.items()}
    try:
        if owner is not None:
            return audit_table(fleet.open_lake(), owner, produced)
        with closing(fleet.open_storage()) as storage:
            stored_offsets = {tp: stored.next for tp, stored in storage.stored_offsets(produced).items()}
            return audit(storage.blocks(), produced, handled(fleet.ledger, TOPIC), storage.dead(), stored_offsets)
    except (AgentError, KctlError):
        if ended is None:
            raise
        return None


def _watch(run: _Run) -> None:
    began: float | None = None
    progress, seconds = run.progress, run.options.seconds
    while not run.interrupts.count:
        _refresh(run)
        if began is None and progress.seconds_to_first_batch is not None:
            began = time.monotonic()
            run.screen.print_line(
                f"the first batch is stored ({_since(progress)}); metrics on {run.fleet.url()}/metrics"
            )
        if began is None and time.monotonic() - progress.started_at > START_SECONDS:
            raise KctlError(f"no batch within {START_SECONDS:.0f} s; the logs are in {run.fleet.directory / 'logs'}")
        if seconds is not None and began is not None and time.monotonic() - began >= seconds:
            return


def _drain(run: _Run) -> None:
    """Waits until everything produced is committed, another Ctrl-C, or the deadline."""
    deadline, already = time.monotonic() + DRAIN_SECONDS, run.interrupts.count
    while (
        run.progress.committed < run.producer.total and run.interrupts.count <= already and time.monotonic() < deadline
    ):
        _refresh(run)


def _empty(run: _Run) -> None:
    """Waits until the sinkers have settled and reported everything, another Ctrl-C, or the deadline."""
    deadline, already = time.monotonic() + DRAIN_SECONDS, run.interrupts.count
    with closing(run.fleet.open_storage()) as storage:
        while run.interrupts.count <= already and time.monotonic() < deadline:
            stats = storage.stats()
            if stats.pending + stats.processing + stats.delayed == 0:
                break
            _refresh(run)
    run.interrupts.pause(REFRESH_SECONDS)  # sinkers publish twice a second
    _refresh(run)


def _refresh(run: _Run) -> None:
    run.parts.check()
    progress, offsets, workers = run.progress, run.fleet.ask("offset_checker"), run.fleet.ask("workers")
    run.parts.check()  # or its last row would be shown once more
    if offsets is not None and workers is not None:
        progress.take(offsets["rows"], workers["rows"])
        lag = _sum_known(row["remaining_count"] for row in offsets["rows"])
        shown = "-" if lag is None else f"{lag:,}"
        shown += f" · handled {progress.settled('handled'):,}" if progress.sinkers else ""
        head = f"produced {run.producer.total:,} · committed {progress.committed:,} · lag {shown} · {_since(progress)}"
        run.screen.show(head, workers["rows"])
    run.interrupts.pause(REFRESH_SECONDS)


def _sum_known(values: Iterable[int | None]) -> int | None:
    """None if none is known, because an unknown lag is not 0."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _command() -> str:
    """Relative to here, because after `make demo` kctl is not on the PATH."""
    own = Path(sys.argv[0])
    found = shutil.which("kctl")
    if own.name != "kctl" or (found and Path(found).resolve() == own.resolve()):
        return "kctl"
    return os.path.relpath(own)


def _since(progress: DemoProgress) -> str:
    return f"{time.monotonic() - progress.started_at:.1f} s"
