"""The demo's broker answers, survives, and leaves nothing behind; its end is noticed and named."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from kafka import KafkaAdminClient

from kctl.demo.fleet import DemoFleet
from kctl.demo.run import Producer, ended_part
from kctl.errors import StartError
from tests.conftest import eventually
from tests.processes import alive
from tests.servers import kafka_tools, topics
from tests.servers.kafka_broker import KafkaBroker


def test_a_killed_broker_is_named_comes_back_on_loopback_only_and_is_gone_once_stopped(short_dir: Path) -> None:
    with KafkaBroker(short_dir / "broker") as broker:
        fleet, first, servers = DemoFleet(short_dir), broker.pid, broker.bootstrap_servers
        topics.create_topic(servers, "orders", 2)
        topics.produce(servers, "orders", {0: 10, 1: 10})
        topics.commit(servers, "readers", "orders", {0: 4})
        producer = Producer(servers, "orders", 1, rate=200)
        producer.start()
        eventually(lambda: producer.total > 0, 60, "messages are acknowledged")
        assert ended_part(broker, fleet) is None

        assert first is not None
        os.kill(first, signal.SIGKILL)
        ended = eventually(lambda: ended_part(broker, fleet), 30, "the end of the broker is noticed")
        assert ended == f"the broker (pid {first}) has ended: signal 9, SIGKILL"
        began = time.monotonic()
        producer.stop(0)
        assert time.monotonic() - began < 20, "it waits for no acknowledgement"
        broker.restart()

        again = broker.pid
        assert again not in (first, None)
        assert broker.bootstrap_servers == servers
        [row] = kafka_tools.describe_group(servers, "readers")
        assert (row.partition, row.current_offset) == (0, 4)
        assert (row.log_end_offset or 0) >= 10 + producer.total
        with KafkaAdminClient(bootstrap_servers=servers) as admin:
            [node] = admin.describe_cluster()["brokers"]
        process = psutil.Process(again)
        listening = {c.laddr.ip for c in process.net_connections("tcp") if c.status == psutil.CONN_LISTEN}

    assert f"{node['host']}:{node['port']}" == servers
    assert listening == {"::ffff:127.0.0.1"} or listening == {"127.0.0.1"}
    assert broker.pid is None
    assert not alive([process])
    assert "Kafka Server started" in broker.log_path.read_text()


def test_a_failed_start_shows_the_end_of_the_log_and_leaves_no_process(short_dir: Path) -> None:
    broker = KafkaBroker(short_dir, {"metric.reporters": "no.such.Reporter"})

    with pytest.raises(StartError) as caught:
        broker.start()

    assert str(broker.log_path) in str(caught.value)
    assert "no.such.Reporter" in str(caught.value)
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
        broker = psutil.Process(int(parent.stdout.readline()))
        assert alive([broker])

        parent.send_signal(signal.SIGKILL)

    eventually(lambda: not alive([broker]), what="the broker outlived its parent")
