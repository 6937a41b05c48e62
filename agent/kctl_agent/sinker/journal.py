"""What a sinker that died was doing: the messages that it had handled alone, and the one it held when it died.

A message that kills its process is found by this, as one that raises is found by its error: the others of its block
are neither handled again nor blamed. Written only while messages are handled one by one. It need not survive the
machine: then the leases run out.
"""

from __future__ import annotations

import logging
import os
import pickle
from pathlib import Path
from typing import BinaryIO

from kctl_agent.sinker.held import Held
from kctl_agent.storage.claim import Claim

__all__ = ["Journal"]

log = logging.getLogger(__name__)

BEGUN, DONE, FAILED = b"?", b"+", b"-"
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
DIED = "the sinker died while it handled this message alone"


class Journal:
    """One file: the claim, then for each message that it was begun and how it ended."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None

    def open(self, claim: Claim) -> None:
        """For the main thread, as the rest. Raises OSError."""
        self._file = open(os.open(self._path, _FLAGS, 0o600), "wb", buffering=0)  # noqa: SIM115 - until `clear`
        body = pickle.dumps(claim)
        self._file.write(len(body).to_bytes(8, "big") + body)

    def begin(self) -> None:
        self._note(BEGUN)

    def end(self, ack: bool) -> None:
        self._note(DONE if ack else FAILED)

    def clear(self) -> None:
        """The claim is settled."""
        if self._file is not None:
            self._file.close()
            self._file = None
        self._path.unlink(missing_ok=True)

    def left_behind(self) -> Held | None:
        """What the sinker of this name before us had in hand, if it died over it."""
        try:
            text = self._path.read_bytes()
            size = int.from_bytes(text[:8], "big")
            notes = text[8 + size :]
            return _read(pickle.loads(text[8 : 8 + size]), notes) if notes else None  # noqa: S301 - 0600, our own
        except FileNotFoundError:
            return None
        except Exception:  # of another release, or cut off by a full disk: its lease is released all the same
            log.warning("%s cannot be read; what it tells is done again", self._path.name)
            return None

    def _note(self, what: bytes) -> None:
        assert self._file is not None
        self._file.write(what)


def _read(claim: Claim, notes: bytes) -> Held:
    held = Held.of(claim)
    for i, ended in enumerate(notes[1::2]):
        held.acks[i] = ended == DONE[0]
    if len(notes) % 2:
        culprit = len(notes) // 2
        held.acks[culprit] = False
        held.errors[culprit] = DIED
    return held
