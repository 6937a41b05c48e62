"""Reads checkpoints periodically, and adds each to its cluster's `ClusterReading` as if it were a consumer group.

Each mount or bucket has a few threads of its own, so that a hanging mount does not delay others.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kctl.checkpoints.checkpoint import Checkpoint, place, read, store_of
from kctl.checkpoints.entries import unread
from kctl.config.clusters import CheckpointSection, seconds_of
from kctl.errors import KctlError
from kctl.kafka.groups import ListedGroup
from kctl.kafka.polls.cluster_reading import ClusterReading
from kctl.kafka.protocol.committed_bytes import by_topic
from kctl.rows.columns import ABSENT
from kctl.status.owners import UNSEEN, Owner

if TYPE_CHECKING:
    from kctl_agent.storage.lake.folder.base import Folder

log = logging.getLogger(__name__)

_THREADS_PER_STORE = 4
_FRESH_INTERVALS = 3  # after this many intervals without an answer, the offsets are unknown


@dataclass(frozen=True, slots=True)
class _Seen:
    checkpoint: Checkpoint
    at: float
    at_unix: float
    planned_after: float
    """The batch was planned no earlier, by our clock, which may differ from the driver's; in seconds since 1970."""

    @property
    def running_seconds(self) -> float | None:
        found = self.checkpoint
        if found.planned == found.committed or found.planned_at is None:
            return None
        return max(self.at_unix - max(found.planned_at, self.planned_after), 0.0)


class _Store:
    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._read: Callable[[str, str], None] = lambda *_: None
        self._intervals: Mapping[tuple[str, str], float] = {}  # (group, URI) -> seconds between two reads
        self._due: dict[tuple[str, str], float] = {}
        self._busy = set[tuple[str, str]]()  # at most one thread waits for a checkpoint that hangs
        self._threads = 0

    def serve(self, read: Callable[[str, str], None], intervals: Mapping[tuple[str, str], float]) -> None:
        with self._changed:
            self._read, self._intervals = read, intervals
            self._due = {name: self._due.get(name, 0.0) for name in intervals}
            self._changed.notify_all()
            while self._threads < min(_THREADS_PER_STORE, len(intervals)):
                threading.Thread(target=self._run, name="kctl-checkpoints", daemon=True).start()
                self._threads += 1

    def _run(self) -> None:
        with self._changed:
            while self._due:  # with no checkpoint left, the thread ends
                name = min(self._due.keys() - self._busy, key=self._due.__getitem__, default=None)
                seconds = None if name is None else self._due[name] - time.monotonic()
                if name is None or seconds is None or seconds > 0:
                    self._changed.wait(seconds)
                    continue
                self._due[name] = time.monotonic() + self._intervals[name]
                self._busy.add(name)
                read = self._read
                self._changed.release()
                try:
                    read(*name)
                finally:
                    self._changed.acquire()
                    self._busy.discard(name)
                    self._changed.notify()
            self._threads -= 1


class CheckpointWatcher:
    """Reads checkpoints on its own threads. Any thread may use the results."""

    def __init__(self, watched: Mapping[str, CheckpointSection]) -> None:
        self._watched = watched
        self._seen: dict[str, _Seen] = {}
        self._errors: dict[str, str] = {}
        self._folders: dict[str, Folder] = {}
        self._reading = ClusterReading()
        self._partitions: dict[str, int] = {}
        self._stores: dict[str, _Store] = {}
        self._is_started = False

    def start(self) -> None:
        if self._is_started:
            return
        self._is_started = True
        of_stores: dict[str, dict[tuple[str, str], float]] = {name: {} for name in self._stores}
        for group, each in self._watched.items():
            of_stores.setdefault(store_of(each.uri), {})[group, each.uri] = each.interval_seconds
        for name, intervals in of_stores.items():
            self._stores.setdefault(name, _Store()).serve(self._read, intervals)

    def close(self) -> None:
        """Stops each thread after its current read. Does not wait."""
        for store in self._stores.values():
            store.serve(self._read, {})

    def take_over(self, old: CheckpointWatcher) -> None:
        """After a reload, takes over the threads of `old`, and its results for checkpoints with unchanged settings."""
        self._stores, old._stores = old._stores, {}
        self._partitions, self._reading = old._partitions, old._reading
        same = {name for name, each in self._watched.items() if old._watched.get(name) == each}
        seen = old._seen.copy()  # its threads may add to it
        self._seen = {name: each for name, each in seen.items() if name in same} | self._seen

    def add_to(self, reading: ClusterReading) -> None:
        """Adds each checkpoint as a group, with the offsets of its newest committed batch. If the setting `topics`
        lists the topics in this cluster, offsets of other topics go to `reading.elsewhere`."""
        now = time.monotonic()
        self._partitions |= self._reading.partitions
        self._reading = reading
        for name, watched in self._watched.items():
            reading.groups[name] = ListedGroup(name, "checkpoint", None, None, -1)
            seen = self._seen.get(name)
            if seen is None or now - seen.at > _FRESH_INTERVALS * watched.interval_seconds:
                continue
            offsets = seen.checkpoint.offsets
            if offsets:
                own = {key: at for key, at in offsets.items() if not watched.topics or key[0] in watched.topics}
                new = dict.fromkeys(unread(own, self._partitions), ABSENT)
                reading.committed[name], reading.read_at[name] = by_topic(own | new), seen.at
                reading.elsewhere[name] = by_topic({key: at for key, at in offsets.items() if key not in own})

    def owner(self, group: str) -> Owner | None:
        watched, seen = self._watched.get(group), self._seen.get(group)
        if watched is None:
            return None
        running = None if seen is None else seen.running_seconds
        every, interval = seconds_of(watched.every), watched.interval_seconds
        return Owner("the query", UNSEEN, every, batch_running_seconds=running, interval_seconds=interval)

    def has(self, group: str) -> bool:
        return group in self._watched

    def error(self, group: str) -> str | None:
        if group in self._errors or group not in self._seen:
            return self._errors.get(group)
        others = [topic for topic, _ in self._reading.elsewhere.get(group, by_topic({})).topics]
        unknown = sorted(self._seen[group].checkpoint.offsets.keys() & self._reading.unknown)
        gone = [each for each in unknown if each[0] not in others]
        why = f"`topics` does not name {', '.join(others)}" if others else None
        if gone:
            why = f"there is no {gone[0][0]}-{gone[0][1]} in this cluster"
        return why and f"{self._watched[group].uri}: {why}"

    def _read(self, group: str, uri: str) -> None:
        at, unix, last = time.monotonic(), time.time(), self._seen.get(group)
        try:
            if uri not in self._folders:
                self._folders[uri] = place(uri)
            found = read(self._folders[uri], with_state=False, last=None if last is None else last.checkpoint)
            why = "" if found.offsets else "; ".join(each.text for each in found.findings) or "it has no offsets yet"
            error = f"{uri}: {why}" if why else None
            after = 0.0 if last is None else last.planned_after
            if last is not None and last.checkpoint.planned != found.planned:
                after = last.at_unix
            self._seen[group] = _Seen(found, at, unix, after)
        except KctlError as failure:
            error = str(failure)
        except Exception as failure:  # a boundary: one checkpoint does not affect another
            log.exception("action=checkpoint_failed group=%s", group)
            error = f"{uri} cannot be read: {failure}"
        if error is None:
            self._errors.pop(group, None)
        elif self._errors.get(group) != error:
            log.warning("action=checkpoint_unknown group=%s error=%s", group, error)
            self._errors[group] = error
