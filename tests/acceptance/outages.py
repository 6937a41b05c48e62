"""Problems of every part of a fleet, each on real parts, and what every view shows of them (docs/problems.md)."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import psutil
from kafka import KafkaProducer

from tests.acceptance.fleets import START_SECONDS
from tests.acceptance.outage_bench import CODE, WORKERS, Bench
from tests.conftest import eventually
from tests.processes import stopped
from tests.servers import topics
from tests.servers.kafka_broker import KafkaBroker
from tests.servers.kafka_cluster import KafkaCluster

Outage: TypeAlias = Callable[[Bench], Any]


@contextmanager
def broker_killed(bench: Bench) -> Iterator[None]:
    """The only broker is killed."""
    broker: KafkaBroker = bench.parts["broker"]
    broker.kill()
    yield
    broker.restart()


def broker_frozen(bench: Bench) -> Any:
    """The only broker is frozen."""
    return stopped([bench.parts["broker"].pid])


@contextmanager
def one_of_three(bench: Bench) -> Iterator[None]:
    """One of three brokers is killed."""
    with without(bench, 2):
        yield


@contextmanager
def controller(bench: Bench) -> Iterator[None]:
    """The active controller of three brokers is killed."""
    with without(bench, bench.parts["cluster"].controller()):
        yield


@contextmanager
def without(bench: Bench, node: int) -> Iterator[None]:
    cluster: KafkaCluster = bench.parts["cluster"]
    cluster.brokers[node].kill()
    yield
    cluster.start()


@contextmanager
def redis_killed(bench: Bench) -> Iterator[None]:
    """Redis is killed."""
    bench.parts["redis"].kill()
    yield
    bench.parts["redis"].start()


def redis_frozen(bench: Bench) -> Any:
    """Redis is frozen."""
    return bench.parts["redis"].frozen()


@contextmanager
def redis_full(bench: Bench) -> Iterator[None]:
    """Redis is at its `maxmemory`."""
    with bench.parts["redis"].client() as client:
        client.config_set("maxmemory", "1mb")
        yield
        client.config_set("maxmemory", "0")


@contextmanager
def disk_full(bench: Bench) -> Iterator[None]:
    """The disk of a file storage is full."""
    filler = bench.parts["disk"] / "filler"
    with filler.open("wb") as file:
        free = os.statvfs(bench.parts["disk"])
        os.posix_fallocate(file.fileno(), 0, free.f_bavail * free.f_frsize - (1 << 20))
    yield
    filler.unlink()


@contextmanager
def engine_killed(bench: Bench) -> Iterator[None]:
    """The engine is killed.

    The problem is over when the engine runs again.
    """
    os.kill(bench.pids("engine")[0], signal.SIGKILL)
    yield
    eventually(lambda: bench.fleet.engine().get("state") == "running", START_SECONDS, "the engine is back")


def engine_frozen(bench: Bench) -> Any:
    """The engine is frozen."""
    return stopped(bench.pids("engine"))


def jvm_frozen(bench: Bench) -> Any:
    """The engine's JVM is frozen."""
    return stopped([bench.fleet.jvm().pid])


def workers_frozen(bench: Bench) -> Any:
    """All workers are frozen."""
    return stopped(bench.pids(*WORKERS))


def one_worker_frozen(bench: Bench) -> Any:
    """One of two workers is frozen."""
    return stopped(bench.pids("worker-1"))


@contextmanager
def workers_fatal(bench: Bench) -> Iterator[None]:
    """No worker can import the transform.

    The problem begins when the workers are `fatal`. It is over when `kctl start` has started them.
    """
    with fatal(bench, *WORKERS):
        yield


@contextmanager
def one_worker_fatal(bench: Bench) -> Iterator[None]:
    """One of two workers cannot import the transform.

    The problem begins when the worker is `fatal`. It is over when `kctl start` has started it.
    """
    with fatal(bench, "worker-0"):
        yield


@contextmanager
def sinkers_dead(bench: Bench) -> Iterator[None]:
    """The only sinker is killed.

    The problem is over when `kctl start` has started it.
    """
    with killed(bench, "sinker-0"):
        yield


@contextmanager
def workers_killed(bench: Bench) -> Iterator[None]:
    """All workers are killed.

    The problem is over when `kctl start` has started them.
    """
    with killed(bench, *WORKERS):
        yield


@contextmanager
def killed(bench: Bench, *names: str) -> Iterator[None]:
    for pid in bench.pids(*names):
        os.kill(pid, signal.SIGKILL)
    yield
    bench.start_again(*names)


@contextmanager
def fatal(bench: Bench, *names: str) -> Iterator[None]:
    bench.parts["code"].write_text("def transform(")
    bench.fleet.kctl("restart", *names, exit_code=None)
    bench.await_states("fatal", *names)
    yield
    bench.parts["code"].write_text(CODE)
    bench.start_again(*names)


@contextmanager
def one_worker_hung(bench: Bench) -> Iterator[None]:
    """The JVM of one of two workers is frozen, so the worker's main thread hangs."""
    [pid] = bench.pids("worker-1")
    [jvm] = [child for child in psutil.Process(pid).children(recursive=True) if child.name() == "java"]
    with stopped([jvm.pid]):
        yield


@contextmanager
def clock_moved(bench: Bench) -> Iterator[None]:
    """The clock is moved by an hour."""
    place: Path = bench.parts["clock"]
    place.touch()
    yield
    place.unlink()


@contextmanager
def handler_hangs(bench: Bench) -> Iterator[None]:
    """A call of the handler hangs.

    The problem begins when the call has run for 10 s.
    """
    place: Path = bench.parts["handler"].with_name("handler-hangs")
    place.touch()
    bench.fleet.send(1700)
    eventually(lambda: (of_sinker(bench)["call_seconds"] or 0.0) > 10.0, 30, "the call hangs")
    yield
    place.unlink()


@contextmanager
def handler_fails_a_fifth(bench: Bench) -> Iterator[None]:
    """The handler fails for a fifth of the messages.

    The problem is over when no try of the last minute has failed.
    """
    place: Path = bench.parts["handler"].with_name("handler-fails")
    place.touch()
    bench.fleet.send(1000)
    yield
    place.unlink()
    eventually(lambda: of_sinker(bench)["recent_failures"] == 0, 90, "the last failures are a minute ago")


@contextmanager
def handler_refuses_one_kind(bench: Bench) -> Iterator[None]:
    """The handler fails for all messages of one kind.

    The problem is over when the handler is corrected and the dead letters are requeued.
    """
    place: Path = bench.parts["handler"].with_name("handler-refuses")
    place.touch()
    bench.fleet.send(1, b"refused")  # five tries, too few to be a finding, alone as well as among those of the start
    yield
    place.unlink()
    bench.fleet.kctl("storage", "dead", "requeue")


@contextmanager
def full_without_sinkers(bench: Bench) -> Iterator[None]:
    """The storage is full, and no sinker runs.

    The problem is over when a sinker runs.
    """
    bench.fleet.kctl("scale", "sinkers=0", "--wait")
    bench.fleet.send(6000)
    eventually(lambda: (bench.fleet.ask("block_size") or {}).get("full"), START_SECONDS, "the storage is full")
    yield
    bench.fleet.kctl("scale", "sinkers=1", "--wait")


@contextmanager
def topic_deleted(bench: Bench) -> Iterator[None]:
    """The topic is deleted.

    The problem is over when the topic exists again.
    """
    servers = bench.parts["broker"].bootstrap_servers
    topics.delete_topic(servers, bench.fleet.topic)
    yield
    topics.create_topic(servers, bench.fleet.topic, bench.fleet.partitions)


@contextmanager
def hanging_transaction(bench: Bench) -> Iterator[None]:
    """A producer hangs in a transaction, and workers read with `read_committed`.

    The problem begins when the transaction has been open for 60 s.
    """
    broker: KafkaBroker = bench.parts["broker"]
    more: dict[str, Any] = {"transactional_id": "hangs", "transaction_timeout_ms": 900_000}
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, **more)
    try:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(bench.fleet.topic, b"x", partition=0)
        producer.flush()
        opened = time.monotonic()
        bench.fleet.send(40)
        eventually(lambda: time.monotonic() - opened > 60.0, 120.0, "it has been open for long")
        yield
        producer.abort_transaction()
    finally:
        producer.close()


def of_sinker(bench: Bench) -> dict[str, Any]:
    rows = json.loads(bench.fleet.kctl("rpc", "workers", "-o", "json", exit_code=None).stdout)["rows"]
    return next(row["sinker"] for row in rows if row["name"] == "sinker-0")


class Problem(NamedTuple):
    """What is done to which fleet, and the level and reason that every view must show."""

    bench: str
    outage: Outage
    level: str
    whats: tuple[str, ...]  # one of these; `N` is any number
    why: str = ""  # words of the cause or remedy that the reason also has
    is_quick: bool = False  # whether also `make test` runs it, not only `make test-long`


NO_BROKER = ("no Kafka broker has answered",)
NO_STORAGE = ("the storage has not answered",)
FULL = ("the storage has been full",)
NO_ENGINE = ("the engine has not run",)
NO_WORKER = ("no worker has worked",)
ONE_WORKER = ("1 of 2 workers has not worked",)
LACKING = (
    "the Kafka brokers have not answered all requests",
    "N of 4 partitions has lacked in-sync replicas",
    "N of 4 partitions have lacked in-sync replicas",
)
PROBLEMS: tuple[Problem, ...] = (
    Problem("redis", broker_killed, "failing", NO_BROKER, is_quick=True),
    Problem("redis", broker_frozen, "failing", NO_BROKER),
    Problem("redis", topic_deleted, "failing", ("topic TOPIC has not existed",), "create it again"),
    Problem("redis", redis_killed, "failing", NO_STORAGE),
    Problem("redis", redis_frozen, "failing", NO_STORAGE),
    Problem("redis", redis_full, "failing", FULL),
    Problem("redis", full_without_sinkers, "failing", FULL, "no sinker takes messages out"),
    Problem("redis", engine_killed, "failing", NO_ENGINE),
    Problem("redis", engine_frozen, "failing", NO_ENGINE),
    Problem("redis", jvm_frozen, "failing", NO_ENGINE),
    Problem("redis", workers_frozen, "failing", NO_WORKER),
    Problem("redis", one_worker_frozen, "degraded", ONE_WORKER, is_quick=True),
    Problem("redis", workers_killed, "failing", NO_WORKER),
    Problem("redis", workers_fatal, "failing", NO_WORKER),
    Problem("redis", one_worker_fatal, "degraded", ONE_WORKER),
    Problem("redis", sinkers_dead, "failing", ("no sinker has worked",)),
    Problem("redis", handler_hangs, "degraded", ("the handler user_code:handle has not returned in 1 of 1 sinker",)),
    Problem(
        "redis",
        handler_refuses_one_kind,
        "degraded",
        ("messages have become dead letters",),
        "ValueError",
        is_quick=True,
    ),
    Problem("redis", handler_fails_a_fifth, "degraded", ("the handler user_code:handle has failed too often",)),
    Problem("redis", clock_moved, "ok", ("everything is running",), is_quick=True),
    Problem("cluster", one_of_three, "degraded", LACKING),
    Problem("cluster", controller, "degraded", LACKING),
    Problem("disk", disk_full, "failing", FULL),
    Problem("own", one_worker_hung, "degraded", ONE_WORKER),
    Problem("own", hanging_transaction, "degraded", ("1 of 4 partitions warn",), "wait behind a transaction"),
)


def start(bench: Bench) -> None:
    """The fleet is started while messages are pending."""
    assert bench.fleet.stop() == 0
    bench.fleet.send(2000)
    bench.fleet.start()
    eventually(bench.fleet.url, START_SECONDS, "the master answers")


def restart(bench: Bench) -> None:
    """All workers and the sinker are restarted."""
    bench.fleet.kctl("restart", "worker-0", "worker-1", "sinker-0", "--wait")


def restart_of_the_engine(bench: Bench) -> None:
    """The engine is restarted."""
    bench.fleet.kctl("restart", "engine", "--wait")


def reload(bench: Bench) -> None:
    """A changed configuration is reloaded, then all processes are restarted one after another."""
    text = bench.fleet.config.read_text()
    bench.fleet.config.write_text(text.replace("[workers]\n", "[workers]\nmax_records_per_batch = 5000\n", 1))
    bench.fleet.kctl("reload")
    bench.fleet.kctl("restart", "--all", "--rolling", "--yes", "--wait")


def scale(bench: Bench) -> None:
    """The fleet is scaled up by a worker and a sinker, then down."""
    bench.fleet.kctl("scale", "workers=3", "sinkers=2", "--wait")
    bench.fleet.kctl("scale", "workers=1", "sinkers=1", "--wait")
    bench.fleet.kctl("scale", "workers=2", "--wait")


CHANGES: tuple[Callable[[Bench], None], ...] = (start, restart, restart_of_the_engine, reload, scale)
"""Ordinary changes by people, during which nothing is ever `failing`."""
