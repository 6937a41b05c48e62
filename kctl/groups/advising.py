"""Advises how many members a group without kctl workers needs. Measures the speed of commits only while all members
are busy, because idle members do not show how much they can handle."""

from threading import Lock

import numpy as np

from kctl.advice.adviser import Adviser, Sample
from kctl.advice.window import Work
from kctl.config.sections import AdviceSection
from kctl.groups.snapshot import Clusters, GroupSnapshot
from kctl.rows.advice import Advice, Answer
from kctl.rows.columns import Reals
from kctl.status.assessments import judged_lag_seconds

_MOST_GROUPS = 50
_STALE_SECONDS = 60.0
_NEVER_BUSY = "in the window, messages did not wait in every partition long enough to keep all members busy"


class GroupAdvisers:
    """Advises on the watched groups: the 50 for which advice was requested most recently. Thread-safe."""

    def __init__(self, rules: AdviceSection | None = None) -> None:
        self._rules = rules or AdviceSection()
        self._lock = Lock()
        self._watched: dict[tuple[str, str], _Watched] = {}

    def prepare(self, clusters: Clusters) -> None:
        """Updates the advice on the watched groups from new snapshots."""
        with self._lock:
            for cluster in clusters.clusters if self._watched else ():
                for group in cluster.groups:
                    watched = self._watched.get((group.cluster, group.group))
                    if watched is not None:
                        watched.see(group, cluster.taken_at, cluster.taken_at_unix)

    def advice(self, group: GroupSnapshot) -> Advice:
        """Returns the last advice on a group, and watches the group."""
        key = group.cluster, group.group
        with self._lock:
            watched = self._watched.pop(key) if key in self._watched else _Watched(self._rules)
            self._watched[key] = watched
            while len(self._watched) > _MOST_GROUPS:
                del self._watched[next(iter(self._watched))]
            return watched.advice


class _Watched:
    def __init__(self, rules: AdviceSection) -> None:
        # Neither the brokers nor the exporter know a group's assignor. Kafka's own assignors spread partitions evenly.
        self._adviser = Adviser(rules, "roundrobin")
        self._work, self._busy_seconds = Work(0, 0, 0.0), 0.0
        self._before: tuple[float, Reals, Reals] | None = None
        self._at = -1.0
        self.advice = Advice.unknown("the group is watched from now on: ask again in a minute", 0)

    def see(self, group: GroupSnapshot, at: float, unix: float) -> None:
        if at <= self._at:
            return
        self._at = at
        rows = list(group.partitions)
        names = "kafka_max_offset", "current_offset", "remaining_count"
        end, committed, lag = (np.array([getattr(row, name) for row in rows], np.float64) for name in names)
        members = 0 if group.stats is None else group.stats.members
        cycle = float(np.nan_to_num(judged_lag_seconds(group.assessments)[1]))
        self._watch(at, end, committed, min(members, len(rows)), cycle)
        self.advice = self._adviser.seen(
            Sample(
                at=at,
                unix=unix,
                keys=tuple((row.topic, row.partition) for row in rows),
                end=end,
                lag=lag,
                owners=(None,) * len(rows),
                workers=members,
                work={"group": self._work},
                full_batch=1,
                cycle_seconds=cycle,
                blocked=_blocked(group),
                bound_by=Answer.HANDLER,
                idle=_NEVER_BUSY,
            )
        )

    def _watch(self, at: float, end: Reals, committed: Reals, members: int, cycle: float) -> None:
        before, self._before = self._before, (at, end, committed)
        if before is None or len(before[1]) != len(end):
            return
        seconds, arrived, done = at - before[0], end - before[1], committed - before[2]
        waiting = np.minimum(end - committed, before[1] - before[2])
        is_active = (arrived > 0) | (waiting > 0)
        # All members are busy only if, in each active partition, messages wait for longer than a commit cycle.
        if not is_active.any() or not (waiting > arrived / seconds * cycle)[is_active].all():
            self._busy_seconds = 0.0
            return
        self._busy_seconds += seconds * min(members, int(is_active.sum()))
        rows = int(np.maximum(done, 0.0).sum())
        if rows:
            old = self._work
            self._work = Work(old.batches + 1, old.rows + rows, old.seconds + self._busy_seconds)
            self._busy_seconds = 0.0


def _blocked(group: GroupSnapshot) -> str:
    if group.type == "share":
        return "members of a share group share each partition, so there is no assignment to compute their number from"
    if group.type == "checkpoint":
        return "a checkpoint is not a group of Kafka: it has no members whose number could be computed"
    if group.stats is None:
        return "the group's coordinator does not answer"
    if not group.stats.members:
        return "the group has no members"
    if group.stats.is_rebalancing:
        return "the group is rebalancing"
    if (group.age_seconds or 0.0) > _STALE_SECONDS:
        return "the brokers' offsets are old"
    return ""
