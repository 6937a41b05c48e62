"""Memory of the supervised processes and all that they have started, from /proc.

Spark's Pythons are forks of one daemon: their shared pages are charged by share (PSS), because otherwise an idle worker
would grow with its tasks. Other processes count all resident pages, because the number of strangers that share a
library should not matter.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable

from kctl.master.process import processes

SCAN_SECONDS = 10.0
"""A scan of all processes costs by their number; in between, new processes do not count."""
SHARED_SECONDS = 60.0
"""Measuring the shared size costs up to a millisecond for each fork."""
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Memory:
    """Measures memory per session. One thread at a time."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._members: dict[int, list[int]] = {}
        self._shared: dict[int, int] = {}
        """By pid: resident bytes of forks that are charged to their relatives."""
        self._families: dict[frozenset[int], float] = {}
        """Forks of one process -> time of the last measurement of their shared size."""
        self._scanned_at = float("-inf")

    def measured(self, sessions: Iterable[int], *, scan_all: bool = False) -> dict[int, int]:
        """Leaves out sessions without live processes. Use `scan_all` while something starts, so that its first size
        includes its JVM."""
        session_ids = set(sessions)
        now = self._clock()
        if scan_all or now - self._scanned_at >= SCAN_SECONDS or not session_ids <= self._members.keys():
            self._scanned_at = now
            self._scan(session_ids, now)
        sizes = {
            session: [
                max(process.resident_pages * _PAGE_BYTES - self._shared.get(process.pid, 0), 0)
                for process in processes(self._members[session])
                if process.session == session  # the pid may have been reused
            ]
            for session in session_ids
        }
        return {session: sum(found) for session, found in sizes.items() if found}

    def _scan(self, session_ids: set[int], now: float) -> None:
        self._members = {session: [] for session in session_ids}
        relatives: dict[tuple[int, int], list[int]] = defaultdict(list)
        for process in processes():
            if process.session in session_ids:
                self._members[process.session].append(process.pid)
                relatives[process.session, process.stack_start].append(process.pid)
        shared: dict[int, int] = {}
        families: dict[frozenset[int], float] = {}
        for family in map(frozenset, filter(lambda pids: len(pids) > 1, relatives.values())):
            asked_at = self._families.get(family)
            is_known = asked_at is not None and now - asked_at < SHARED_SECONDS
            families[family] = asked_at if asked_at is not None and is_known else now
            shared |= {pid: self._shared[pid] if is_known else shared_bytes(pid) for pid in family}
        self._shared, self._families = shared, families


def shared_bytes(pid: int) -> int:
    """Resident minus PSS; 0 if unknown (before Linux 4.14, another user's, ended). Walks all pages: 3 ms for a JVM of
    850 MB, a thousand times the cost of /proc/PID/stat."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb", buffering=0) as file:
            lines = file.read(4096).splitlines()
    except OSError:
        return 0
    kibibytes = {name: int(line.split()[1]) for line in lines for name in (line[:4],) if name in (b"Rss:", b"Pss:")}
    return max(kibibytes.get(b"Rss:", 0) - kibibytes.get(b"Pss:", 0), 0) * 1024
