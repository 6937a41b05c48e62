"""Memory of the supervised processes and all that they have started, from /proc.

Spark's Pythons are forks of one daemon and share most resident pages; if each counted them, an idle worker would grow
with its tasks. So pages shared among forks are charged by share (PSS). Other processes count all resident pages: what
they share with strangers, such as libraries, should not depend on how many strangers there are.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable

from kctl.master.process import processes

SCAN_SECONDS = 10.0
"""How often to scan all processes of the machine, which costs by their number; newer processes are not counted until
then."""
SHARED_SECONDS = 60.0
"""How long to rely on the shared size of the same forks; measuring it costs up to a millisecond each."""
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Memory:
    """Measures memory per session. One thread at a time."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._members: dict[int, list[int]] = {}
        """Processes of each session, as they were at the last scan of all."""
        self._shared: dict[int, int] = {}
        """Resident bytes of forks that are charged to their relatives, by pid."""
        self._families: dict[frozenset[int], float] = {}
        """Forks of one process, with the time when it was last measured what they share."""
        self._scanned_at = float("-inf")

    def measured(self, sessions: Iterable[int], *, scan_all: bool = False) -> dict[int, int]:
        """Bytes per session; sessions without live processes are absent. Use `scan_all` while something starts, so that
        its first size includes its JVM."""
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
    """Resident minus PSS; 0 if unknown (before Linux 4.14, another user's, ended). The kernel walks all pages: a
    thousand times the cost of /proc/PID/stat, 3 ms for a JVM of 850 MB."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb", buffering=0) as file:
            lines = file.read(4096).splitlines()
    except OSError:
        return 0
    kibibytes = {name: int(line.split()[1]) for line in lines for name in (line[:4],) if name in (b"Rss:", b"Pss:")}
    return max(kibibytes.get(b"Rss:", 0) - kibibytes.get(b"Pss:", 0), 0) * 1024
