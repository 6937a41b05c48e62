"""Runs `kctl demo`: a real broker, a producer, a fleet of Spark workers, and an audit of the stored messages."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Any

from kafka import KafkaProducer, TopicPartition
from kafka.errors import KafkaError

from kctl.children import PRIVATE
from kctl.demo.audit import Audit, audit, audit_table, handled, places
from kctl.demo.fleet import GROUP, DemoFleet, lay_out
from kctl.demo.kafka_broker import KafkaBroker
from kctl.demo.summary import DemoOptions, DemoProgress, has_passed, in_words, show, summary
from kctl.errors import KctlError, PortTaken, StartError
from kctl.jars.ivy import fetch
from kctl.jars.java import java_command
from kctl.kafka.admin import create_topic
from kctl.kafka.client.access import plain
from kctl.kafka.client.connection import ClusterConnection
from kctl.master.restart import cause
from kctl_agent.errors import AgentError
from kctl_agent.rpc.messages import number_of
from kctl_agent.storage.chunk import Binding
from kctl_agent.storage.kinds import KINDS

TICK_SECONDS = 0.05
RUN = 16
"""Consecutive messages that go to one partition, as with Kafka's own partitioner (KIP-480). Otherwise, with many
partitions, each message would be its own batch and cost a core."""
VALUE_BYTES = 200


class Producer(threading.Thread):
    """Produces messages until `stop`. The producer is idempotent, so retries create no duplicates."""

    def __init__(self, bootstrap_servers: str, topic: str, partitions: int, rate: float) -> None:
        super().__init__(name="kctl-demo-producer", daemon=True)
        self._topic = topic
        self._partitions = partitions
        self._rate = rate
        self._stop_asked = threading.Event()
        self._flush_seconds = 30.0
        self._lock = threading.Lock()
        self._acknowledged: Counter[TopicPartition] = Counter()
        self._sent = 0
        self._producer = KafkaProducer(
            bootstrap_servers=bootstrap_servers,
            enable_idempotence=True,
            acks="all",
            linger_ms=20,
            max_block_ms=5000,  # for metadata or room; so late may `stop` take effect
            client_id="kctl-demo",
        )

    @property
    def acknowledged(self) -> dict[TopicPartition, int]:
        with self._lock:
            return dict(self._acknowledged)

    @property
    def total(self) -> int:
        with self._lock:
            return self._acknowledged.total()

    @property
    def not_acknowledged(self) -> int:
        """Counts messages in flight, and messages that the client has given up."""
        with self._lock:
            return self._sent - self._acknowledged.total()

    def run(self) -> None:
        try:
            self._produce()
        except RuntimeError:  # kafka-python raises it for a client that `stop(0)` has closed
            if not self._stop_asked.is_set():
                raise

    def _produce(self) -> None:
        self._await_topic()  # the client drops messages that it has no metadata for
        sent, started = 0, time.monotonic()
        while not self._stop_asked.wait(TICK_SECONDS):
            due = int((time.monotonic() - started) * self._rate)
            for number in range(sent, due):
                if self._stop_asked.is_set():
                    break
                self._send(number)
            sent = max(sent, due)
        with suppress(KafkaError):  # the audit counts messages that are not acknowledged by then
            self._producer.flush(self._flush_seconds)

    def stop(self, timeout_seconds: float = 30.0) -> None:
        """Stops producing and waits up to `timeout_seconds` for acknowledgements. Pass 0 if the broker has ended."""
        self._flush_seconds = timeout_seconds
        self._stop_asked.set()
        if self.is_alive():
            self.join(timeout_seconds)
        try:
            self._producer.close(timeout=min(timeout_seconds, 5.0))
        # raised by its flush when brokers do not answer: kafka-python then leaves its thread running
        except KafkaError:
            self._producer._sender.force_close()  # noqa: SLF001 - it has no other name for giving up
            with suppress(KafkaError):
                self._producer.close(timeout=5)

    def _await_topic(self) -> None:
        while not self._stop_asked.is_set():
            with suppress(KafkaError):
                if self._producer.partitions_for(self._topic):
                    return

    def _send(self, number: int) -> None:
        value = json.dumps({"number": number, "at": time.time()}).ljust(VALUE_BYTES, "x").encode()
        partition = number // RUN % self._partitions
        with self._lock:
            self._sent += 1
        with suppress(KafkaError):  # no metadata, or no room, within max.block.ms
            future = self._producer.send(self._topic, value, key=str(number).encode(), partition=partition)
            future.add_callback(self._on_success)

    def _on_success(self, metadata: object) -> None:
        with self._lock:
            self._acknowledged[TopicPartition(metadata.topic, metadata.partition)] += 1  # type: ignore[attr-defined]


TOPIC = "demo"
REFRESH_SECONDS = 0.5
LINE_SECONDS = 2.0
DRAIN_SECONDS = 120.0
START_SECONDS = 300.0


class PartEnded(Exception):
    """A process of the demo has ended by itself. The message names the process and the cause."""


def ended_part(broker: KafkaBroker, master: DemoFleet | None = None) -> str | None:
    """Returns a sentence about the broker or master if it has ended, otherwise None."""
    # The broker first, because without it the master may end too.
    if (code := broker.ended()) is not None:
        return f"the broker (pid {broker.pid}) has ended: {cause(code)}"
    if master is not None and (code := master.ended()) is not None:
        return f"the master (pid {master.pid}) has ended: {cause(code)}; its log: {master.last_lines()}"
    return None


def bring_parts(storage: str) -> None:
    """Checks for Java, and for deltalake if `storage` is a table. Fetches missing jars. Raises StartError."""
    if KINDS[storage].is_table and find_spec("deltalake") is None:
        raise StartError("`--storage lake` needs deltalake: pip install deltalake, or leave `--storage lake` away")
    java_command()
    fetch(progress=sys.stderr.write)


class Interrupts:
    """Counts Ctrl-C and SIGTERM. Each signal ends the demo's current step: producing messages, or waiting until they
    are stored or handled. Until `is_something_to_end` is set, a signal raises KeyboardInterrupt instead."""

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
    """Runs the demo until its time is over or Ctrl-C, and prints the summary. Returns 0 if the demo passes, otherwise
    1. Raises KctlError if the demo cannot start."""
    bring_parts(options.storage)
    os.umask(PRIVATE)
    place = directory.absolute() if directory else Path(tempfile.mkdtemp(prefix="kctl-demo-"))
    lay_out(place)
    say = partial(print, file=sys.stderr if output == "json" else sys.stdout, flush=True)
    with Interrupts().taken() as interrupts, ExitStack() as stack:
        try:
            summary = _demo(place, options, interrupts, say, stack)
        except KeyboardInterrupt:
            say("interrupted before anything was produced")
            if directory is None:
                stack.callback(shutil.rmtree, place, ignore_errors=True)
            raise
        except BaseException:
            say(f"all of the demo is kept in {place}")
            raise
    passed = has_passed(summary, options)
    show(summary, output, place, is_handled=options.is_handled, passed=passed)
    if passed and directory is None:
        shutil.rmtree(place, ignore_errors=True)
    return 0 if passed else 1


def broker_only(directory: Path | None, port: int | None = None) -> int:
    """Runs a broker until Ctrl-C. If `directory` is given, the topics remain there. Raises KctlError."""
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
        print(f"Kafka broker answers on {broker.bootstrap_servers}; Ctrl-C ends it", flush=True)  # noqa: T201
        while not interrupts.count:
            if (ended := ended_part(broker)) is not None:
                raise KctlError(ended)
            interrupts.pause(REFRESH_SECONDS)
    return 0


def _demo(
    place: Path, options: DemoOptions, interrupts: Interrupts, say: Callable[[str], None], stack: ExitStack
) -> dict[str, Any]:
    say(f"demo in {place}")
    fleet, progress = DemoFleet(place), DemoProgress()
    broker = stack.enter_context(KafkaBroker(place / "broker"))
    say(f"Kafka broker answers on {broker.bootstrap_servers} ({progress.since})")
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
        with ClusterConnection(plain(broker.bootstrap_servers), timeout_seconds=30.0) as connection:
            connection.open()
            create_topic(connection, TOPIC, options.partitions, None, {})
        owner = Binding(GROUP, broker.cluster_id) if KINDS[options.storage].is_table else None
        producer = Producer(broker.bootstrap_servers, TOPIC, options.partitions, options.rate)
    except (KafkaError, KctlError) as error:
        if (ended := ended_part(broker, fleet)) is not None:
            raise KctlError(ended) from error
        raise KctlError(f"the broker on {broker.bootstrap_servers} does not do what it is asked: {error}") from error
    ended_by_itself = None
    try:
        _Load(broker, fleet, producer, progress, options, interrupts, say).run()
    except PartEnded as error:
        ended_by_itself = str(error)
        say(f"{ended_by_itself}; the demo ends")
    finally:
        producer.stop(0 if ended_part(broker, fleet) else 30)
        fleet.stop()
    found = _audit(fleet, producer, owner, ended_by_itself)
    return summary(found, progress, producer.total, producer.not_acknowledged, options, ended_by_itself)


@dataclass(slots=True)
class _Load:
    broker: KafkaBroker
    fleet: DemoFleet
    producer: Producer
    progress: DemoProgress
    options: DemoOptions
    interrupts: Interrupts
    say: Callable[[str], None]
    line_at: float = 0.0

    def run(self) -> None:
        self.producer.start()
        sinkers = f" and {number_of(self.options.sinkers, 'sinker')}" if self.options.sinkers else ""
        started = number_of(self.options.workers, "worker") + sinkers
        self.say(f"starting {started}; for a live table, in another terminal: kctl top -c {self.fleet.config}")
        self._watch()
        self._check()
        handled_too = " and handled" if self.options.is_handled else ""
        self.say(f"the producer stops; what it has produced is still being stored{handled_too}")
        self.producer.stop()
        self._until(lambda: self.progress.committed >= self.producer.total)
        if self.options.sinkers:
            with closing(self.fleet.open_storage()) as storage:
                self._until(lambda: not storage.stats().unfinished)

    def _watch(self) -> None:
        began, seconds = None, self.options.seconds
        while not self.interrupts.count:
            self._refresh()
            now = time.monotonic()
            if began is None and self.progress.seconds_to_first_batch is not None:
                began = now
                self.say(f"the first batch is stored ({self.progress.since}); metrics on {self.fleet.url()}/metrics")
            if began is None and now - self.progress.started_at > START_SECONDS:
                logs = self.fleet.directory / "logs"
                raise KctlError(f"no batch within {START_SECONDS:.0f} s; the logs are in {logs}")
            if seconds is not None and began is not None and now - began >= seconds:
                return

    def _until(self, is_done: Callable[[], bool]) -> None:
        deadline, already = time.monotonic() + DRAIN_SECONDS, self.interrupts.count
        while self.interrupts.count <= already and time.monotonic() < deadline and not is_done():
            self._refresh()

    def _refresh(self) -> None:
        self._check()
        offsets, workers = self.fleet.ask("offset_checker"), self.fleet.ask("workers")
        self._check()  # or its last row would be shown once more
        if offsets is not None and workers is not None:
            self.progress.take(offsets["rows"], workers["rows"])
            if time.monotonic() - self.line_at >= LINE_SECONDS:
                self.line_at = time.monotonic()
                self.say(" · ".join([*self.progress.words(self.producer.total), in_words(workers["rows"])]))
        self.interrupts.pause(REFRESH_SECONDS)

    def _check(self) -> None:
        if (ended := ended_part(self.broker, self.fleet)) is not None:
            raise PartEnded(ended)


def _audit(fleet: DemoFleet, producer: Producer, owner: Binding | None, ended: str | None) -> Audit | None:
    produced = {tuple(tp): count for tp, count in producer.acknowledged.items()}
    try:
        if owner is not None:
            return audit_table(fleet.open_lake(), owner, produced)
        with closing(fleet.open_storage()) as storage:
            stored_offsets = {tp: stored.next for tp, stored in storage.stored_offsets(produced).items()}
            dead = places(dead_letter.block for dead_letter in storage.dead())
            return audit(places(storage.blocks()), produced, handled(fleet.ledger, TOPIC), dead, stored_offsets)
    except (AgentError, KctlError):
        if ended is None:
            raise
        return None
