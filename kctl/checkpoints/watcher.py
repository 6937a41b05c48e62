"""Checkpoints that are watched: each is read again and again, and is a group in the polls of its cluster.

A store that hangs holds up nobody but checkpoints of the same folder: each folder of checkpoints has threads of its
own, which end with the process.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kctl.checkpoints.checkpoint import Checkpoint, read
from kctl.checkpoints.places import place
from kctl.config.clusters import CheckpointSection, seconds_of
from kctl.errors import KctlError
from kctl.kafka.groups import ListedGroup
from kctl.kafka.polls.cluster_reading import ClusterReading
from kctl.kafka.protocol.committed_bytes import by_topic
from kctl.status.owners import UNSEEN, Owner

if TYPE_CHECKING:
    from kctl_agent.storage.lake.folder.base import Folder

log = logging.getLogger(__name__)

_THREADS = 4
_FRESH_INTERVALS = 3
"""After so many intervals without an answer the offsets are no longer known."""


@dataclass(frozen=True, slots=True)
class _Seen:
    checkpoint: Checkpoint
    at: float
    """Monotonic seconds, before it was read."""


class CheckpointWatcher:
    """Reads checkpoints, on threads of its own; what it has seen may be taken on any thread."""

    def __init__(self, watched: Mapping[str, CheckpointSection]) -> None:
        """`watched`: checkpoints by the group that each is shown as."""
        self._watched = watched
        self._seen: dict[str, _Seen] = {}
        self._errors: dict[str, str] = {}
        self._folders: dict[str, Folder] = {}
        self._stop = threading.Event()
        self._is_started = False

    def start(self) -> None:
        """Begins to read. Idempotent."""
        if self._is_started:
            return
        self._is_started = True
        of_folders = defaultdict[str, list[str]](list)
        for group, each in self._watched.items():
            of_folders[each.uri.rstrip("/").rpartition("/")[0]].append(group)
        for parts in of_folders.values():
            for number in range(min(_THREADS, len(parts))):
                some = parts[number::_THREADS]
                threading.Thread(target=self._run, args=(some,), name="kctl-checkpoints", daemon=True).start()

    def close(self) -> None:
        """Ends the threads once they have an answer; does not wait for them."""
        self._stop.set()

    def take_over(self, old: CheckpointWatcher) -> None:
        """Keeps what another one has seen of the same checkpoints."""
        same = {name for name, each in self._watched.items() if old._watched.get(name) == each}
        self._seen = {name: each for name, each in old._seen.items() if name in same} | self._seen

    def add_to(self, reading: ClusterReading) -> None:
        """Adds each checkpoint to a poll, as a group with the offsets of its newest committed batch."""
        now = time.monotonic()
        for name, watched in self._watched.items():
            reading.groups[name] = ListedGroup(name, "checkpoint", None, None, -1)
            seen = self._seen.get(name)
            if seen is None or now - seen.at > _FRESH_INTERVALS * watched.interval_seconds:
                continue
            offsets = seen.checkpoint.offsets
            if offsets:
                reading.committed[name] = by_topic(
                    {key: at for key, at in offsets.items() if not watched.topics or key[0] in watched.topics}
                )

    def owner(self, group: str, now_unix: float) -> Owner | None:
        """Returns the query behind a group as the rules take it; None for a group of Kafka."""
        watched, seen = self._watched.get(group), self._seen.get(group)
        if watched is None:
            return None
        found = None if seen is None else seen.checkpoint
        running = None
        if found is not None and found.planned != found.committed and found.planned_at is not None:
            running = max(now_unix - found.planned_at, 0.0)
        return Owner("the query", UNSEEN, seconds_of(watched.every), None, running)

    def has(self, group: str) -> bool:
        return group in self._watched

    def error(self, group: str) -> str | None:
        """Returns why the offsets of a checkpoint are not known, a sentence."""
        return self._errors.get(group)

    def _run(self, groups: Sequence[str]) -> None:
        due = dict.fromkeys(groups, 0.0)
        while not self._stop.is_set():
            group = min(due, key=due.__getitem__)
            if self._stop.wait(max(due[group] - time.monotonic(), 0.0)):
                return
            due[group] = time.monotonic() + self._watched[group].interval_seconds
            self._read(group, self._watched[group].uri)

    def _read(self, group: str, uri: str) -> None:
        at, last = time.monotonic(), self._seen.get(group)
        try:
            if uri not in self._folders:
                self._folders[uri] = place(uri)
            found = read(self._folders[uri], with_state=False, last=None if last is None else last.checkpoint)
            why = "" if found.offsets else "; ".join(each.text for each in found.findings) or "it has no offsets yet"
            error = f"{uri}: {why}" if why else None
            self._seen[group] = _Seen(found, at)
        except KctlError as failure:
            error = str(failure)
        except Exception as failure:  # a boundary: one checkpoint spoils no other
            log.exception("action=checkpoint_failed group=%s", group)
            error = f"{uri} cannot be read: {failure}"
        if error is None:
            self._errors.pop(group, None)
        elif self._errors.get(group) != error:
            log.warning("action=checkpoint_unknown group=%s error=%s", group, error)
            self._errors[group] = error
