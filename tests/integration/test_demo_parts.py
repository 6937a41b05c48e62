"""A part of the demo that ends by itself is noticed and named, and the producer does not wait for it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from kctl.demo import run as demo
from kctl.demo.fleet import DemoFleet
from kctl.demo.parts import DemoParts, PartEnded
from kctl.demo.producer import Producer
from kctl.demo.summary import DemoOptions
from kctl.testing.kafka_broker import KafkaBroker
from kctl.testing.topics import create_topic

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]


@pytest.mark.shows("a broker of the demo that ends is named with pid and signal")
def test_a_killed_broker_is_named_and_the_producer_ends_at_once(tmp_path: Path, eventually: Callable[..., Any]) -> None:
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


class Fleet(DemoFleet):
    """A master that never answers, of a demo whose broker is killed when it is asked for the second time."""

    brokers: ClassVar[list[KafkaBroker]] = []
    asked = 0

    def start(self) -> None:
        self.ledger.mkdir(parents=True)
        self._process = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)

    def ask(self, command: str, timeout_seconds: float = 5.0) -> None:
        self.asked += 1
        pid = self.brokers[-1].pid
        if self.asked == 2 and pid is not None:
            os.kill(pid, signal.SIGKILL)

    def stop(self) -> int | None:
        assert self._process is not None
        self._process.communicate()
        return self._process.wait()


class Broker(KafkaBroker):
    def start(self) -> None:
        Fleet.brokers.append(self)
        super().start()


def test_a_demo_whose_broker_is_killed_ends_at_once_with_what_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "DemoFleet", Fleet)
    monkeypatch.setattr(demo, "KafkaBroker", Broker)
    mask = os.umask(0)
    os.umask(mask)
    try:
        code = demo.main(DemoOptions(1, 2, 100.0, None, "file", 0), "json", tmp_path / "demo")
    finally:
        os.umask(mask)

    printed = capfd.readouterr()
    summary = json.loads(printed.out.splitlines()[-1])
    assert code == 1
    assert re.fullmatch(r"the broker \(pid \d+\) has ended: signal 9, SIGKILL", summary["ended_by_itself"])
    assert summary["seconds"] < 90, "it waits neither for the storage nor for acknowledgements"
    assert f"kept in {tmp_path / 'demo'}" in printed.err
