"""The demo's handler: records and acknowledges each message. One file per process and one write per call, so that the
records of a killed process survive."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from kctl.demo.audit import Place
    from kctl_agent.message import Message

HANDLER = "kctl.demo.ledger:Ledger"
FOLDER_VARIABLE = "KCTL_DEMO_LEDGER"
"""A variable, because a handler receives only messages."""
_RECORD = struct.Struct("<qi")


class Ledger:
    def __init__(self) -> None:
        self._file: BinaryIO | None = None

    def handle(self, messages: list[Message]) -> list[bool]:
        if self._file is None:
            path = Path(os.environ[FOLDER_VARIABLE], f"{os.getpid()}.ledger")
            self._file = path.open("ab", buffering=0)
        self._file.write(b"".join(_RECORD.pack(message.offset, message.partition) for message in messages))
        return [True] * len(messages)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def handled(folder: Path, topic: str) -> Iterator[Place]:
    """Yields every message as often as it was handled."""
    for path in sorted(folder.glob("*.ledger")):
        body = path.read_bytes()
        for offset, partition in _RECORD.iter_unpack(body[: len(body) // _RECORD.size * _RECORD.size]):
            yield topic, partition, offset
