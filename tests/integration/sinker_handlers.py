"""Handlers for sinkers under test: each handled message adds 16 bytes to the file that `KCTL_TEST_LEDGER` names."""

import os
import signal
import struct
import threading
import time
from pathlib import Path

from kctl_agent.message import Message

RECORD = struct.Struct("<qii")  # offset, partition, pid
POISON = 7


def note(messages: list[Message]) -> None:
    # A single write, so that a kill keeps all or none of a call.
    body = b"".join(RECORD.pack(message.offset, message.partition, os.getpid()) for message in messages)
    with open(os.environ["KCTL_TEST_LEDGER"], "ab", buffering=0) as ledger:
        ledger.write(body)


def ledger() -> list[tuple[int, int]]:
    path = Path(os.environ["KCTL_TEST_LEDGER"])
    return [record[:2] for record in RECORD.iter_unpack(path.read_bytes())] if path.exists() else []


def counts(messages: list[Message]) -> list[bool]:
    note(messages)
    return [True] * len(messages)


def takes_a_millisecond_each(messages: list[Message]) -> list[bool]:
    threading.Event().wait(len(messages) / 1000)
    return [True] * len(messages)


class Opened:
    """Notes opening and closing as offsets -1 and -2."""

    async def open(self) -> None:
        note([Message("", 0, -1, None, None, 0)])

    async def handle(self, messages: list[Message]) -> list[bool]:
        return counts(messages)

    def close(self) -> None:
        note([Message("", 0, -2, None, None, 0)])


class CannotOpen:
    def open(self) -> None:
        raise OSError("no route")

    def handle(self, messages: list[Message]) -> list[bool]:
        raise AssertionError


def chokes(messages: list[Message]) -> list[bool]:
    note(messages)
    if any(message.offset == POISON for message in messages):
        raise ValueError(f"offset {POISON} cannot be read")
    return [True] * len(messages)


def dies(messages: list[Message]) -> list[bool]:
    note(messages)
    if any(message.offset == POISON for message in messages):
        os.kill(os.getpid(), signal.SIGKILL)
    return [True] * len(messages)


def hangs(messages: list[Message]) -> list[bool]:
    note(messages)
    if any(message.offset == POISON for message in messages):
        signal.pause()
    return [True] * len(messages)


def waits_for_gate(messages: list[Message]) -> list[bool]:
    """Notes the call, then waits until the test writes to its gate, a named pipe."""
    note(messages)
    with open(os.environ["KCTL_TEST_GATE"], "rb", buffering=0) as gate:
        gate.read(1)
    return [True] * len(messages)


def sets_the_clock_back(messages: list[Message]) -> list[bool]:
    """Sets its process's clock back an hour at each call, and rejects each message once."""
    global _clock
    note(messages)
    now, _clock = _clock, lambda: now() - 3600.0
    time.time = _clock
    return [message.tries > 0 for message in messages]


_clock = time.time


def fails_on_poison(messages: list[Message]) -> list[bool]:
    note(messages)
    acks = [message.offset != POISON or message.tries >= 2 for message in messages]
    first = acks.index(False) if False in acks else len(acks)
    return [i < first for i in range(len(messages))]


def fails_once(messages: list[Message]) -> list[bool]:
    acks = [message.offset % 3 != 0 or message.tries > 0 for message in messages]
    note([message for message, ack in zip(messages, acks, strict=True) if ack])
    return acks


def fifths_die(messages: list[Message]) -> list[bool | ValueError]:
    note(messages)
    return [message.offset % 5 != 0 or ValueError(f"card {message.offset}") for message in messages]
