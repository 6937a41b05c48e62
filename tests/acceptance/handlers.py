"""Handlers for the tests' sinkers: all but `refuses` record their messages, and `counts`, of the fault tests, its
results, too.

Each process writes its own file, once per call. Some messages are never acknowledged (`is_poison`). If the folder has a
file `hold`, the handler removes it, records the call, notes it in `held.PID`, and does not return until it is let go. A
test can so kill or stop a process inside a call.
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

HANDLER = "tests.acceptance.handlers:counts"
KEEPER = "tests.acceptance.handlers:keeps"
REFUSER = "tests.acceptance.handlers:refuses"
REFUSED = b"refuse"
"""The payload that `refuses` never acknowledges."""
HOLD = "hold"
BLOCK_MESSAGES = 500
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
    with _gate(folder, pid).open("wb", buffering=0) as gate:
        gate.write(b"x")


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


def counted(folder: Path) -> tuple[Counter[Place], Counter[Place]]:
    acknowledged: Counter[Place] = Counter()
    refused: Counter[Place] = Counter()
    for place, ack in _records(folder.glob("*.ledger")):
        (acknowledged if ack else refused)[place] += 1
    return acknowledged, refused


def sizes(folder: Path) -> dict[Path, int]:
    """Bytes of whole messages by process."""
    return {path: path.stat().st_size // _RECORD.size * _RECORD.size for path in folder.glob("*.ledger")}


def given_since(folder: Path, before: Mapping[Path, int]) -> set[Place]:
    found: set[Place] = set()
    for path in folder.glob("*.ledger"):
        with path.open("rb") as ledger:
            ledger.seek(before.get(path, 0))
            written = ledger.read()  # the last call may be incomplete
            whole = written[: len(written) // _RECORD.size * _RECORD.size]
            found |= {(partition, offset) for offset, partition, _ in _RECORD.iter_unpack(whole)}
    return found


def held(folder: Path) -> tuple[int, set[Place], set[Place]] | None:
    """The process that holds a call, the call's messages, and earlier ones that may belong to the same claim and so are
    not settled; None while no process holds one. Returned once."""
    for path in folder.glob("held.*"):
        call, pid = [place for place, _ in _records([path])], int(path.suffix[1:])
        path.unlink()
        given = [place for place, _ in _records([folder / f"{pid}.ledger"])][: -len(call)]
        return pid, set(call), set(_run_before(call[0], given))
    return None


def _run_before(place: Place, given: list[Place]) -> Iterator[Place]:
    """The last given messages, of one partition without a gap, as in a block."""
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
