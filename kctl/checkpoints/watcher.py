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
from typing import TYPE_CHECKING, NamedTuple

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


class Watched(NamedTuple):
    """A checkpoint that is to be watched, with the name of the group that it is shown as."""

    group: str
    uri: str
    topics: tuple[str, ...] = ()
    """Topics that count; empty: all."""
    every_seconds: float | None = None
    """How often the job is started; None: it runs all the time."""
    interval_seconds: float = 60.0

    @classmethod
    def of(cls, checkpoints: Mapping[str, CheckpointSection]) -> tuple[Watched, ...]:
        return tuple(
            cls(each.group or name, each.uri, each.topics, seconds_of(each.every), each.interval_seconds)
            for name, each in checkpoints.items()
        )


@dataclass(frozen=True, slots=True)
class _Seen:
    checkpoint: Checkpoint
    at: float
    """Monotonic seconds, before it was read."""


class CheckpointWatcher:
    """Reads checkpoints, on threads of its own; what it has seen may be taken on any thread."""

    def __init__(self, watched: Sequence[Watched]) -> None:
        self._watched = {each.group: each for each in watched}
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
        of_folders = defaultdict[str, list[Watched]](list)
        for each in self._watched.values():
            of_folders[each.uri.rstrip("/").rpartition("/")[0]].append(each)
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
        """Adds each checkpoint to a poll, as a group with the offsets of its newest committed batch. A group of Kafka
        of the same name is left out."""
        now = time.monotonic()
        for name, watched in self._watched.items():
            reading.groups[name] = ListedGroup(name, "checkpoint", None, None, -1)
            for part in (reading.committed, reading.members, reading.share_lag):
                part.pop(name, None)
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
        return Owner("the query", UNSEEN, watched.every_seconds, None, running)

    def has(self, group: str) -> bool:
        return group in self._watched

    def error(self, group: str) -> str | None:
        """Returns why the offsets of a checkpoint are not known, a sentence."""
        return self._errors.get(group)

    def _run(self, watched: Sequence[Watched]) -> None:
        due = dict.fromkeys(watched, 0.0)
        while not self._stop.is_set():
            each = min(due, key=due.__getitem__)
            if self._stop.wait(max(due[each] - time.monotonic(), 0.0)):
                return
            due[each] = time.monotonic() + each.interval_seconds
            self._read(each)

    def _read(self, watched: Watched) -> None:
        at, last = time.monotonic(), self._seen.get(watched.group)
        try:
            if watched.uri not in self._folders:
                self._folders[watched.uri] = place(watched.uri)
            known = None if last is None else last.checkpoint
            found = read(self._folders[watched.uri], with_state=False, last=known)
            why = "" if found.offsets else "; ".join(each.text for each in found.findings) or "it has no offsets yet"
            error = f"{watched.uri}: {why}" if why else None
            self._seen[watched.group] = _Seen(found, at)
        except KctlError as failure:
            error = str(failure)
        except Exception as failure:  # a boundary: one checkpoint spoils no other
            log.exception("action=checkpoint_failed group=%s", watched.group)
            error = f"{watched.uri} cannot be read: {failure}"
        if error is None:
            self._errors.pop(watched.group, None)
        elif self._errors.get(watched.group) != error:
            log.warning("action=checkpoint_unknown group=%s error=%s", watched.group, error)
            self._errors[watched.group] = error
