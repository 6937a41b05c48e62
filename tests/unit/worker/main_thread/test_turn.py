import socket
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kafka import TopicPartition
from kafka.errors import KafkaTimeoutError
from py4j.clientserver import ClientServer, JavaParameters
from py4j.protocol import Py4JError

from kctl_agent.attached import partition_offsets
from kctl_agent.process import deadline
from kctl_agent.spark.py4j_security import guard_connections
from kctl_agent.storage.base import StorageUnusable
from kctl_agent.worker.main_thread import main_loop
from kctl_agent.worker.offsets import brokers as brokers_module
from kctl_agent.worker.offsets import start_offsets
from kctl_agent.worker.offsets.brokers import Brokers
from kctl_agent.worker.offsets.commit_metadata import LogSeen
from kctl_agent.worker.offsets.start_offsets import StartOffsets
from kctl_agent.worker.query.run import stop_queries
from tests.clock import Clock
from tests.scratch_storage import ScratchStorage
from tests.worker_settings import settings

MAX_POLL_SECONDS = 60.0
PARTITIONS = [TopicPartition("t", number) for number in range(500)]
EPOCHS = LogSeen(1, 10), LogSeen(2, 20)  # what the leaders reported before, and what they report now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Advances only by the duration of simulated requests."""
    made = Clock()
    monkeypatch.setattr(deadline, "time", SimpleNamespace(monotonic=made))
    deadline.begin(main_loop.TURN_SHARE * MAX_POLL_SECONDS)
    return made


class HangingAdmin:
    """Each request to a leader times out. Other answers come as late as possible."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._manager = SimpleNamespace(cluster=SimpleNamespace(request_update=lambda: None), run=self._hangs)

    def _hangs(self, *_: object, **__: object) -> Any:
        self._clock.now += brokers_module.REQUEST_TIMEOUT_MS / 1000
        raise KafkaTimeoutError("no answer")

    list_partition_offsets = _hangs

    def list_group_offsets(self, asked: dict[str, list[TopicPartition]]) -> Any:
        self._clock.now += partition_offsets.QUESTION_SECONDS
        return {group: {} for group in asked}

    def describe_topics(self, topics: list[str]) -> Any:
        self._clock.now += 5.0
        rows = [
            {"partition_index": i, "leader_id": i, "replica_nodes": [], "isr_nodes": [], "offline_replicas": []}
            for i in range(len(PARTITIONS))
        ]
        return [{"name": name, "error_code": 0, "topic_id": "A", "partitions": rows} for name in topics]

    def describe_cluster(self) -> Any:
        self._clock.now += partition_offsets.QUESTION_SECONDS
        return {"cluster_id": "C"}


@pytest.fixture
def brokers(clock: Clock, tmp_path: Path) -> Brokers:
    made = Brokers.__new__(Brokers)
    made._settings, made._cluster_id = settings(tmp_path).kafka, None
    made._client = HangingAdmin(clock)
    return made


class SlowStorage(ScratchStorage):
    turns: Clock

    def stored_offsets(self, partitions: Any) -> Any:
        self.turns.now += start_offsets.CALL_SECONDS
        return super().stored_offsets(partitions)

    def bind(self, *args: Any, **options: Any) -> str:
        self.turns.now += start_offsets.CALL_SECONDS
        return super().bind(*args, **options)


@pytest.mark.shows("one turn of a worker is bounded even if leaders, the storage, the JVM or queries hang")
@pytest.mark.parametrize(
    "asks",
    [
        lambda brokers, *_: brokers.bounds(PARTITIONS),
        lambda brokers, *_: brokers.divergences_of_each(*(dict.fromkeys(PARTITIONS, seen) for seen in EPOCHS)),
        lambda brokers, storage, place: StartOffsets(place, storage, brokers).decide(frozenset(PARTITIONS), {}),
    ],
    ids=["the ends of their logs", "which logs they have", "where to begin"],
)
@pytest.mark.parametrize("before_seconds", [0.0, 25.0, 40.0])
def test_whatever_is_asked_of_brokers_and_storage_that_are_slow_ends_with_the_turn(
    asks: Callable[..., None], before_seconds: float, brokers: Brokers, clock: Clock, tmp_path: Path
) -> None:
    storage = SlowStorage()
    storage.turns = clock
    clock.now += before_seconds

    with pytest.raises((KafkaTimeoutError, StorageUnusable)):
        asks(brokers, storage, settings(tmp_path))

    assert clock.now - 1000.0 < MAX_POLL_SECONDS


def test_a_leader_that_answers_is_heard_though_many_others_hang(brokers: Brokers, clock: Clock) -> None:
    client: Any = brokers._client
    hangs = client.list_partition_offsets

    def answers_first(asked: dict[TopicPartition, Any], **_: object) -> Any:
        return {PARTITIONS[0]: "offset"} if set(asked) == {PARTITIONS[0]} else hangs()

    client.list_partition_offsets = answers_first
    found, unanswered = partition_offsets.answered_offsets(client, PARTITIONS, None)

    assert set(found) == {PARTITIONS[0]}
    assert set(unanswered) == set(PARTITIONS[1:])
    assert clock.now - 1000.0 < MAX_POLL_SECONDS


def test_nine_queries_that_do_not_stop_are_waited_for_together(tmp_path: Path) -> None:
    may_end = threading.Event()
    checkpoints = [tmp_path / str(number) for number in range(9)]
    for each in checkpoints:
        each.mkdir()
    before = set(threading.enumerate())
    started = time.monotonic()

    stop_queries({each: SimpleNamespace(stop=may_end.wait) for each in checkpoints}, 0.2)

    assert time.monotonic() - started < 5.0
    may_end.set()
    for thread in set(threading.enumerate()) - before:
        thread.join()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("token", [None, "secret"])
def test_a_call_of_a_jvm_that_hangs_is_given_up_with_the_turn(token: str | None) -> None:
    guard_connections()
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:  # sends nothing, like a frozen JVM
        gateway = ClientServer(java_parameters=JavaParameters(port=silent.getsockname()[1], auth_token=token))
        started = time.monotonic()
        deadline.begin(0.3)

        for _ in range(9):
            with pytest.raises(Py4JError):
                gateway.jvm.java.lang.System.currentTimeMillis()

        assert 0.3 <= time.monotonic() - started < 10.0
        gateway.shutdown()
