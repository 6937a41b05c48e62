"""`kctl kafka consume` of hostile messages: bytes as they are into a pipe, harmless on a terminal."""

from __future__ import annotations

import contextlib
import os
import pty
import subprocess
import sys

import pytest
from kafka import KafkaProducer

from tests.servers.kafka_broker import KafkaBroker

pytestmark = pytest.mark.real

BAD = b"\x1b]0;owned\x07\x1b[2J\xc2\x9b31m\xe2\x80\xae\xff\r"


@pytest.mark.parametrize("form", ["value", "line", "json"])
def test_message_bytes_cannot_steer_the_terminal_and_reach_a_pipe_unchanged(broker: KafkaBroker, form: str) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
    producer.send("orders", BAD, key=BAD, partition=0).get(60)
    producer.close()
    words = ["kafka", "consume", "-b", broker.bootstrap_servers, "-t", "orders", "--limit", "1", "--format", form]
    line = [sys.executable, "-m", "kctl", *words]

    piped = subprocess.run(line, capture_output=True, check=True).stdout
    ours, theirs = pty.openpty()
    with subprocess.Popen(line, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        seen = b""
        with contextlib.suppress(OSError):  # the end of a terminal is an error
            while data := os.read(ours, 1 << 16):
                seen += data
    os.close(ours)

    assert process.returncode == 0
    assert seen.decode().replace("\r\n", "").isprintable(), seen
    assert b"owned" in seen or form == "json"
    if form == "value":
        assert BAD in piped
