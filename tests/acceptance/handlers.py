"""Handlers for the tests' sinkers. All but `refuses` record their messages, and `counts` also its results. Each process
writes its own file, once per call. `counts` never acknowledges some messages (`is_poison`)."""

import os
import pickle
import struct
from collections import Counter
from contextlib import suppress
from pathlib import Path

from kctl.demo.audit import FOLDER_VARIABLE
from kctl_agent.message import Message

HANDLER = "tests.acceptance.handlers:counts"
KEEPER = "tests.acceptance.handlers:keeps"
REFUSER = "tests.acceptance.handlers:refuses"
REFUSED = b"refuse"  # `refuses` never acknowledges this payload
Place = tuple[int, int]
_RECORD = struct.Struct("<qi?")


def is_poison(offset: int) -> bool:
    return offset % 499 == 7


def counts(messages: list[Message]) -> list[bool]:
    folder = Path(os.environ[FOLDER_VARIABLE])
    acks = [not is_poison(message.offset) for message in messages]
    call = b"".join(_RECORD.pack(m.offset, m.partition, ack) for m, ack in zip(messages, acks, strict=True))
    with (folder / f"{os.getpid()}.ledger").open("ab", buffering=0) as ledger:
        ledger.write(call)
    return acks


def refuses(messages: list[Message]) -> list[bool]:
    return [message.value != REFUSED for message in messages]


def keeps(messages: list[Message]) -> list[bool]:
    with (Path(os.environ[FOLDER_VARIABLE]) / f"{os.getpid()}.kept").open("ab") as file:
        for message in messages:
            pickle.dump(message, file)
    return [True] * len(messages)


def kept(folder: Path) -> list[Message]:
    found: list[Message] = []
    for path in folder.glob("*.kept"):
        with path.open("rb") as file, suppress(EOFError, pickle.UnpicklingError):
            while file.peek(1):
                found.append(pickle.load(file))
    return sorted(found, key=lambda message: (message.partition, message.offset))


def acknowledged(folder: Path) -> Counter[Place]:
    return Counter(
        (partition, offset)
        for path in folder.glob("*.ledger")
        for offset, partition, ack in _RECORD.iter_unpack(path.read_bytes())
        if ack
    )
