"""A lock in an object store: an object that its owner renews. It keeps two from doing the same work, no more: what they
do is fenced by the table's log, for an owner that was frozen does not know that its lease is over.

No clock of a host is compared with that of the store. A lease is over once one process has seen it unchanged for
LEASE_SECONDS, by its own clock that only goes on; so it has to look at least twice.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kctl_agent.storage.lake.folder.s3 import S3Folder

__all__ = ["Lease", "Seen"]

LEASE_SECONDS = 60.0
"""After so long without a renewal a lock is free. Its owner renews it three times as often."""
POLLS = 30
"""So often a lock of somebody else is read in that time by a caller that waits."""

Seen = dict[str, tuple[str, float]]
"""Of a lock of somebody else, by its place: the stamp, and since when it is that (seconds, monotonic)."""


class Lease:
    """One owner's, of the lock of this name. `seen` is what the process has seen of locks before. Where a method names
    no other error, it raises OSError."""

    def __init__(self, folder: S3Folder, name: str, seen: Seen) -> None:
        self._folder = folder
        self._name = name
        self._place = str(folder.below(name))
        self._seen = seen
        self._owner = uuid.uuid4().hex.encode()

    def take(self) -> bool:
        """Whether it is ours now; asks once."""
        if self._folder.create(self._name, content := self._content()):
            return True
        found = self._folder.find(self._name)
        if found is None or not self._is_over(found.stamp):
            return False
        return self._folder.replace(self._name, found.stamp, content)

    def wait(self) -> bool:
        """As `take`, but for the last word on an owner that may be gone: it is known after LEASE_SECONDS at the most,
        or once the lock is renewed."""
        first, pause = None, threading.Event()
        while not self.take():
            stamp, _ = self._seen.get(self._place, (first, 0.0))
            if first is not None and stamp != first:
                return False
            first = stamp
            pause.wait(LEASE_SECONDS / POLLS)
        return True

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Renew what was taken for the time of the block, and then free it. Raises nothing: one that cannot be renewed,
        or freed, ends by itself."""
        ended = threading.Event()
        renewing = threading.Thread(target=self._renew, args=[ended], name="kctl-lease", daemon=True)
        renewing.start()
        try:
            yield
        finally:
            ended.set()
            renewing.join()
            with suppress(OSError):
                if self._find_own() is not None:
                    self._folder.remove([self._name])

    def _renew(self, ended: threading.Event) -> None:
        while not ended.wait(LEASE_SECONDS / 3):
            with suppress(OSError):  # the next time may succeed
                stamp = self._find_own()
                if stamp is None:
                    return
                self._folder.replace(self._name, stamp, self._content())

    def _find_own(self) -> str | None:
        """The stamp of the lock; None: it is somebody else's by now."""
        found = self._folder.find(self._name)
        try:
            content = self._folder.read(self._name)  # only we make it ours, so it was when it was found
        except FileNotFoundError:
            return None
        return found.stamp if found is not None and content.startswith(self._owner) else None

    def _content(self) -> bytes:
        """Another one each time: the ETag of an object goes by what is in it."""
        return self._owner + uuid.uuid4().hex.encode()

    def _is_over(self, stamp: str) -> bool:
        now = time.monotonic()
        before, since = self._seen.get(self._place, (None, now))
        if before != stamp:
            self._seen[self._place] = stamp, now
            return False
        return now - since >= LEASE_SECONDS
