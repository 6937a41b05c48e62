"""A part of the demo that ends by itself is noticed and named, and the producer does not wait for it."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from kctl.demo.fleet import DemoFleet
from kctl.demo.producer import Producer
from kctl.demo.run import DemoParts, PartEnded
from tests.conftest import eventually
from tests.servers.kafka_broker import KafkaBroker
from tests.servers.topics import create_topic

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]


def test_a_killed_broker_is_named_and_the_producer_ends_at_once(tmp_path: Path) -> None:
    with KafkaBroker(tmp_path / "broker") as broker:
        parts = DemoParts(broker, DemoFleet(tmp_path))
        create_topic(broker.bootstrap_servers, "demo", 2)
        producer = Producer(broker.bootstrap_servers, "demo", 2, rate=200)
        producer.start()
        eventually(lambda: producer.total > 0, 60, "messages are acknowledged")
        parts.check()

        assert broker.pid is not None
        os.kill(broker.pid, signal.SIGKILL)
        eventually(lambda: parts.ended() is not None, 30, "the end of the broker is noticed")

        with pytest.raises(PartEnded, match=rf"^the broker \(pid {broker.pid}\) has ended: signal 9, SIGKILL$"):
            parts.check()
        began = time.monotonic()
        producer.stop(0)
        assert time.monotonic() - began < 20, "it waits for no acknowledgement"
        assert producer.total > 0
