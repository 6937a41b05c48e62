"""The journal of a sinker for its successor: the messages it has handled alone, and the one in flight when it died,
which may have killed the process.

It is written only while messages are handled one by one: the claim as one line of JSON, then one byte per note. Their
space is allocated with the claim, so a full disk cannot keep a handled message from being noted.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import stat
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

from kctl_agent.sinker.in_flight import InFlightClaim
from kctl_agent.storage.block import Block
from kctl_agent.storage.claim import Claim

log = logging.getLogger(__name__)

FORMAT = 3
"""Version of the file: 1 was a pickle, 2 did not preallocate notes."""
BEGUN, DONE, FAILED = b"?", b"+", b"-"
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW
DIED = "the sinker died while it handled this message alone"
UNKNOWN = "the handler failed with this message alone, and the sinker died before it stored the reason"


class Journal:
    """A sinker's journal file. For the main thread only."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None

    def open(self, claim: Claim) -> None:
        """Writes the claim. Raises OSError, mostly because the disk is full."""
        self.clear()
        line = _line(claim)
        self._file = open(os.open(self._path, _WRITE, 0o600), "wb", buffering=0)  # noqa: SIM115 - until `clear`
        try:
            os.posix_fallocate(self._file.fileno(), 0, len(line) + 2 * len(claim.messages))
        except OSError as error:
            error.filename = str(self._path)
            raise
        self._file.write(line)

    def begin(self) -> None:
        self._note(BEGUN)

    def end(self, ack: bool) -> None:
        self._note(DONE if ack else FAILED)

    def clear(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
        self._path.unlink(missing_ok=True)

    def left_behind(self) -> InFlightClaim | None:
        try:
            line, _, notes = _own_bytes(self._path).rstrip(b"\0").partition(b"\n")
            return _restored(_claim(json.loads(line)), notes) if notes else None
        except FileNotFoundError:
            return None
        except Exception:  # from another release, or truncated by a full disk: its lease is released anyway
            log.warning("%s cannot be read; its messages will be handled again", self._path.name)
            return None

    def _note(self, what: bytes) -> None:
        assert self._file is not None
        self._file.write(what)


def _own_bytes(path: Path) -> bytes:
    """Reads a regular file of this user with one link. Raises OSError for any other."""
    with open(os.open(path, _READ), "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_nlink != 1:
            raise PermissionError(f"{path} is not a file of our own")
        return file.read()


def _line(claim: Claim) -> bytes:
    block = asdict(claim.block) | {"body": base64.b64encode(claim.block.body).decode("ascii")}
    fields = {name: getattr(claim, name) for name in ("id", "token", "owner", "tries")}
    return json.dumps({"format": FORMAT, **fields, "block": block}).encode("ascii") + b"\n"


def _claim(given: dict[str, Any]) -> Claim:
    if given.pop("format") != FORMAT:
        raise ValueError("another format")
    body = base64.b64decode(given["block"]["body"], validate=True)
    block = Block(**{**given.pop("block"), "body": body})
    return Claim(**given, block=block, messages=block.messages(given["tries"]))


def _restored(claim: Claim, notes: bytes) -> InFlightClaim:
    claimed = InFlightClaim.of(claim)
    for i, ended in enumerate(notes[1::2]):
        claimed.acks[i] = ended == DONE[0]
        if not claimed.acks[i]:
            claimed.errors[i] = UNKNOWN
    if len(notes) % 2:
        culprit = len(notes) // 2
        claimed.acks[culprit] = False
        claimed.errors[culprit] = DIED
    return claimed
