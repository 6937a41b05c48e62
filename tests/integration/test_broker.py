"""The demo's broker answers, survives, and leaves nothing behind; its end is noticed and named."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from kafka import KafkaAdminClient, KafkaConsumer, OffsetAndMetadata, TopicPartition
from kafka.admin import OffsetSpec

from kctl.demo.fleet import DemoFleet
from kctl.demo.kafka_broker import two_free_ports
from kctl.demo.producer import Producer
from kctl.demo.run import ended_part
from kctl.errors import StartError
from tests.conftest import eventually
from tests.consumers import until_assigned
from tests.servers import kafka_tools, topics
from tests.servers.kafka_broker import KafkaBroker
from tests.servers.topics import create_topic


def offsets_of(broker: KafkaBroker, topic: str, partitions: int, spec: OffsetSpec = OffsetSpec.LATEST) -> list[int]:
    wanted = {TopicPartition(topic, number): spec for number in range(partitions)}
    with KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
        found = admin.list_partition_offsets(wanted)
    return [found[partition].offset for partition in wanted]


def member(broker: KafkaBroker, topic: str, group: str) -> KafkaConsumer:
    """The caller closes it."""
    consumer = KafkaConsumer(
        bootstrap_servers=broker.bootstrap_servers, group_id=group, client_id="a client", enable_auto_commit=False
    )
    consumer.subscribe([topic])
    until_assigned(consumer)
    return consumer


def is_gone(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def test_a_broker_answers_on_loopback_only_comes_back_after_a_kill_and_is_gone_once_stopped(short_dir: Path) -> None:
    with KafkaBroker(short_dir) as broker:
        first, servers = broker.pid, broker.bootstrap_servers
        topics.create_topic(servers, "orders", 2)
        topics.produce(servers, "orders", {0: 10, 1: 10})
        consumer = member(broker, "orders", "readers")
        consumer.commit({TopicPartition("orders", 0): OffsetAndMetadata(4, "", -1)})
        consumer.close()

        broker.kill()
        broker.restart()

        again = broker.pid
        assert again not in (first, None)
        assert broker.bootstrap_servers == servers
        assert offsets_of(broker, "orders", 2) == [10, 10]
        rows = kafka_tools.describe_group(servers, "readers")
        assert [(row.partition, row.current_offset) for row in rows] == [(0, 4)]
        with KafkaAdminClient(bootstrap_servers=servers) as admin:
            [node] = admin.describe_cluster()["brokers"]
        listening = {c.laddr.ip for c in psutil.Process(again).net_connections("tcp") if c.status == psutil.CONN_LISTEN}

    assert f"{node['host']}:{node['port']}" == servers
    assert listening == {"::ffff:127.0.0.1"} or listening == {"127.0.0.1"}
    assert broker.pid is None
    assert is_gone(again)
    assert "Kafka Server started" in broker.log_path.read_text()


def test_a_port_that_was_taken_meanwhile_is_replaced_by_another(short_dir: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as occupant:
        good = two_free_ports()
        choices = iter([(good[0], occupant.getsockname()[1]), two_free_ports()])

        with KafkaBroker(short_dir, choose_ports=lambda: next(choices)) as broker:
            assert broker.bootstrap_servers != f"127.0.0.1:{good[0]}"

    assert next(choices, None) is None


@pytest.mark.parametrize(
    "broken", [{"log.dirs": "/proc/nowhere"}, {"num.io.threads": "none"}, {"metric.reporters": "no.such.Reporter"}]
)
def test_a_failed_start_shows_the_end_of_the_log_and_leaves_no_process(short_dir: Path, broken: dict[str, str]) -> None:
    broker = KafkaBroker(short_dir, broken)

    with pytest.raises(StartError) as caught:
        broker.start()

    assert str(broker.log_path) in str(caught.value)
    assert next(iter(broken.values())) in str(caught.value)
    assert "\tat " not in str(caught.value)
    assert broker.pid is None


def test_a_broker_dies_with_the_process_that_started_it(short_dir: Path) -> None:
    program = (
        "import pathlib, sys; from tests.servers.kafka_broker import KafkaBroker\n"
        "broker = KafkaBroker(pathlib.Path(sys.argv[1])); broker.start()\n"
        "print(broker.pid, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(short_dir)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert not is_gone(pid)

        parent.send_signal(signal.SIGKILL)

    eventually(lambda: is_gone(pid), what="the broker outlived its parent")


def test_a_killed_broker_is_named_and_the_producer_ends_at_once(tmp_path: Path) -> None:
    with KafkaBroker(tmp_path / "broker") as broker:
        master = DemoFleet(tmp_path)
        create_topic(broker.bootstrap_servers, "demo", 2)
        producer = Producer(broker.bootstrap_servers, "demo", 2, rate=200)
        producer.start()
        eventually(lambda: producer.total > 0, 60, "messages are acknowledged")
        assert ended_part(broker, master) is None

        assert broker.pid is not None
        os.kill(broker.pid, signal.SIGKILL)
        ended = eventually(lambda: ended_part(broker, master), 30, "the end of the broker is noticed")

        assert ended == f"the broker (pid {broker.pid}) has ended: signal 9, SIGKILL"
        began = time.monotonic()
        producer.stop(0)
        assert time.monotonic() - began < 20, "it waits for no acknowledgement"
        assert producer.total > 0
