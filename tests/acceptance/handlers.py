"""The handlers that tests give to their sinkers: they write down what they were given. `counts`, of the fault tests,
also writes down what it returned for it.

One file per process, one write per call. Some messages it never acknowledges (`is_poison`). When it finds the file
`hold` in its folder it takes it away, writes down the call all the same, notes that in `held.PID`, and does not return
until it is let go: then it can be killed or stopped for certain inside a call.
"""

from __future__ import annotations

import os
import pickle
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from kctl.demo.audit import FOLDER_VARIABLE
from kctl_agent.message import Message

__all__ = [
    "HANDLER",
    "HOLD",
    "KEEPER",
    "Place",
    "counted",
    "counts",
    "given_since",
    "held",
    "is_poison",
    "keeps",
    "kept",
    "let_go",
    "sizes",
]

HANDLER = "tests.acceptance.handlers:counts"
KEEPER = "tests.acceptance.handlers:keeps"
HOLD = "hold"
BLOCK_MESSAGES = 500
"""The most that a block has, and so a claim."""
Place = tuple[int, int]
"""Partition and offset."""
_RECORD = struct.Struct("<qi?")


def is_poison(offset: int) -> bool:
    return offset % 499 == 7


def counts(messages: list[Message]) -> list[bool]:
    folder = Path(os.environ[FOLDER_VARIABLE])
    acks = [not is_poison(message.offset) for message in messages]
    call = b"".join(_RECORD.pack(m.offset, m.partition, ack) for m, ack in zip(messages, acks, strict=True))
    with (folder / f"{os.getpid()}.ledger").open("ab", buffering=0) as ledger:
        ledger.write(call)
    try:
        (folder / HOLD).rename(folder / f"taken.{os.getpid()}")
    except FileNotFoundError:
        return acks
    with suppress(FileExistsError):
        os.mkfifo(_gate(folder, os.getpid()))
    (folder / f"taken.{os.getpid()}").write_bytes(call)
    (folder / f"taken.{os.getpid()}").rename(folder / f"held.{os.getpid()}")
    with _gate(folder, os.getpid()).open("rb", buffering=0) as gate:
        gate.read(1)
    return acks


def _gate(folder: Path, pid: int) -> Path:
    return folder / f"gate.{pid}"


def let_go(folder: Path, pid: int) -> None:
    """Let the call that this process holds return."""
    with _gate(folder, pid).open("wb", buffering=0) as gate:
        gate.write(b"x")


def keeps(messages: list[Message]) -> list[bool]:
    with (Path(os.environ[FOLDER_VARIABLE]) / f"{os.getpid()}.kept").open("ab") as file:
        for message in messages:
            pickle.dump(message, file)
    return [True] * len(messages)


def kept(folder: Path) -> list[Message]:
    """All that `keeps` was given, by partition and offset; what is just being written is left to the next call."""
    found: list[Message] = []
    for path in folder.glob("*.kept"):
        with path.open("rb") as file, suppress(EOFError, pickle.UnpicklingError):
            while file.peek(1):
                found.append(pickle.load(file))
    return sorted(found, key=lambda message: (message.partition, message.offset))


def counted(folder: Path) -> tuple[Counter[Place], Counter[Place]]:
    """How often each message was acknowledged, and how often it was refused."""
    acknowledged: Counter[Place] = Counter()
    refused: Counter[Place] = Counter()
    for place, ack in _records(folder.glob("*.ledger")):
        (acknowledged if ack else refused)[place] += 1
    return acknowledged, refused


def sizes(folder: Path) -> dict[Path, int]:
    """How much each process has written down, in whole messages."""
    return {path: path.stat().st_size // _RECORD.size * _RECORD.size for path in folder.glob("*.ledger")}


def given_since(folder: Path, before: Mapping[Path, int]) -> set[Place]:
    """What anybody was given since the ledgers had these sizes."""
    found: set[Place] = set()
    for path in folder.glob("*.ledger"):
        with path.open("rb") as ledger:
            ledger.seek(before.get(path, 0))
            written = ledger.read()  # the last call may still be being written
            whole = written[: len(written) // _RECORD.size * _RECORD.size]
            found |= {(partition, offset) for offset, partition, _ in _RECORD.iter_unpack(whole)}
    return found


def held(folder: Path) -> tuple[int, set[Place], set[Place]] | None:
    """The process that holds a call, the messages of it, and those before it that may be of the same claim and so not
    settled either; None while nobody does. Returned once."""
    for path in folder.glob("held.*"):
        call, pid = [place for place, _ in _records([path])], int(path.suffix[1:])
        path.unlink()
        given = [place for place, _ in _records([folder / f"{pid}.ledger"])][: -len(call)]
        return pid, set(call), set(_run_before(call[0], given))
    return None


def _run_before(place: Place, given: list[Place]) -> Iterator[Place]:
    """Given last, of one partition without a gap, as the messages of a block are."""
    for partition, offset in reversed(given[-BLOCK_MESSAGES:]):
        if (partition, offset + 1) != place:
            return
        place = (partition, offset)
        yield place


def _records(paths: Iterable[Path]) -> list[tuple[Place, bool]]:
    return [
        ((partition, offset), ack)
        for path in paths
        for offset, partition, ack in _RECORD.iter_unpack(path.read_bytes())
    ]
