"""`kctl kafka consume` of hostile messages: bytes as they are into a pipe, harmless on a terminal."""

from __future__ import annotations

import subprocess

import pytest
from kafka import KafkaProducer

from tests.command_lines import KCTL
from tests.servers.kafka_broker import KafkaBroker
from tests.terminals import on_a_terminal

pytestmark = pytest.mark.real

BAD = b"\x1b]0;owned\x07\x1b[2J\xc2\x9b31m\xe2\x80\xae\xff\r"


@pytest.mark.parametrize("form", ["value", "line", "json"])
def test_message_bytes_cannot_steer_the_terminal_and_reach_a_pipe_unchanged(broker: KafkaBroker, form: str) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
    producer.send("orders", BAD, key=BAD, partition=0).get(60)
    producer.close()
    words = ["kafka", "consume", "-b", broker.bootstrap_servers, "-t", "orders", "--limit", "1", "--format", form]

    piped = subprocess.run([*KCTL, *words], capture_output=True, check=True).stdout
    seen = on_a_terminal(*words, code=0)

    assert seen.decode().replace("\r\n", "").isprintable(), seen
    assert b"owned" in seen or form == "json"
    if form == "value":
        assert BAD in piped
