"""Keeps what was seen of every partition and judges all of them, collection by collection."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from kctl.reduce import PartitionRow
from kctl.status.hysteresis import Reported, settle
from kctl.status.rules import Owner, Rules, growth_per_second, is_blind, judge, kept_seconds, span_seconds
from kctl.status.sparkline import Sparkline
from kctl.status.time_lag import Processed, lag_seconds, remembered
from kctl.status.window import Observation, Uncommitted, Window
from kctl.status.words import Assessment, Status

__all__ = ["Assessor", "of_group"]

_NAMED = 3
_LASTING = frozenset({Status.IDLE, Status.STALLED, Status.STOPPED})


@dataclass(slots=True)
class _Partition:
    window: Window = field(default_factory=Window)
    sparkline: Sparkline = field(default_factory=Sparkline)
    reported: Reported | None = None
    processed: Processed | None = None
    row: PartitionRow | None = None
    """The last one, with its owner."""
    owner: Owner | None = None
    assessment: Assessment | None = None
    judged_at: float = 0.0
    """When the rules were last asked."""


class Assessor:
    """One thread at a time. What is not among the rows any more is forgotten."""

    def __init__(self, rules: Rules, *, keep_reason_seconds: float = 0.0) -> None:
        """`keep_reason_seconds`: for so long the seconds in the reason of what has not changed may stay as they were.
        Everything else is as without it; the rules are most of what a collection of thousands of partitions costs."""
        self._rules = rules
        self._keep_reason_seconds = keep_reason_seconds
        self._partitions: dict[tuple[str, int], _Partition] = {}

    def assess(
        self, rows: Sequence[PartitionRow], owner_of: Callable[[PartitionRow], Owner], now: float, now_unix: float
    ) -> tuple[Assessment, ...]:
        """One assessment per row, in order. `now` is monotonic seconds, `now_unix` the same moment as Unix seconds."""
        partitions: dict[tuple[str, int], _Partition] = {}
        assessments = []
        for row in rows:
            key = (row.topic, row.partition)
            partition = partitions[key] = self._partitions.get(key) or _Partition()
            assessments.append(self._assess(partition, row, owner_of(row), now, now_unix))
        self._partitions = partitions
        return tuple(assessments)

    def sparkline(self, topic: str, partition: int) -> list[int | None]:
        """The lag of the last 15 minutes in steps of 15 s, oldest first; may be asked on any thread."""
        known = self._partitions.get((topic, partition))
        return [] if known is None else known.sparkline.lags()

    def _assess(
        self, partition: _Partition, row: PartitionRow, owner: Owner, now: float, now_unix: float
    ) -> Assessment:
        lag, allowed = row.lag, self._rules.allowed_lag
        partition.sparkline.add(lag, now)
        if (
            now - partition.judged_at < self._keep_reason_seconds
            and _is_settled(partition, row, owner, self._rules)
            and partition.window.add_again(now - row.age_seconds)
        ):
            partition.row = row
            return self._settled(partition, row, now, now_unix)
        partition.processed = remembered(partition.processed, row)
        window = partition.window = _window(partition.window, row, now)
        read = row.lag_from if window.is_lag_known else row.start
        if read is not None and row.end is not None:
            window.add(
                Observation(now - row.age_seconds, read, row.end, row.start), kept_seconds(window, owner), allowed
            )
        span = span_seconds(window, owner, self._rules)
        judged = judge(window, owner, self._rules, now)
        blind = is_blind(window, self._rules, now)
        partition.reported = settle(partition.reported, judged, now, self._rules.hold_seconds, is_blind=blind)
        growth = None if lag is None or judged[0] is Status.UNKNOWN else _rounded(growth_per_second(window, span))
        caught_up_at = window.caught_up_at
        caught_up_ago = None if caught_up_at is None else now - caught_up_at
        if lag is not None and lag <= allowed:
            lag = 0
        partition.assessment = Assessment(
            *partition.reported.judgement,
            lag_seconds=_rounded(lag_seconds(lag, partition.processed, caught_up_ago, now_unix)),
            growth_per_second=growth,
            catchup_seconds=_rounded(_catchup(lag, growth)),
            window_complete=_rounded(window.complete(span)),
        )
        partition.row, partition.owner, partition.judged_at = row, owner, now
        return partition.assessment

    def _settled(self, partition: _Partition, row: PartitionRow, now: float, now_unix: float) -> Assessment:
        """As it was assessed last; only the time that messages have waited goes on."""
        known = partition.assessment
        assert known is not None
        if known.status is Status.IDLE:
            return known
        caught_up_at = partition.window.caught_up_at
        caught_up_ago = None if caught_up_at is None else now - caught_up_at
        seconds = _rounded(lag_seconds(row.lag, partition.processed, caught_up_ago, now_unix))
        growth, complete = known.growth_per_second, known.window_complete
        return Assessment(known.status, known.reason, seconds, growth, known.catchup_seconds, complete)


def _is_settled(partition: _Partition, row: PartitionRow, owner: Owner, rules: Rules) -> bool:
    """Whether the rules would find the same again, but for the seconds in the reason: nothing has changed, and the
    status is one that lasts until something does."""
    old, known = partition.row, partition.assessment
    return (
        old is not None
        and known is not None
        and known.status in _LASTING
        and old[2:7] == row[2:7]
        and old.share_lag == row.share_lag
        and known.growth_per_second == 0.0
        and known.window_complete == 1.0
        and partition.reported is not None
        and partition.reported.better_since is None
        and partition.window.ahead_since is None
        and row.age_seconds <= rules.window_seconds
        and (owner is partition.owner or owner == partition.owner)
    )


def _window(window: Window, row: PartitionRow, now: float) -> Window:
    """Another one where lag begins to be counted from something else: to go from a position to the first commit, or
    from a commit that is gone to the log start, is no rewind."""
    is_lag_known, before = row.lag_from is not None, window.uncommitted
    if row.committed is not None:
        if before is None:
            return window
        return Window(committed_at=None if window.newest is None else now - row.age_seconds)
    if before is not None and window.is_lag_known == is_lag_known:
        return window
    is_gone = before is Uncommitted.GONE or (before is None and window.newest is not None)
    return Window(Uncommitted.GONE if is_gone else Uncommitted.NEVER, is_lag_known=is_lag_known)


def _rounded(value: float | None) -> float | None:
    """To thousandths: more digits would only be longer to write, to send and to store."""
    return None if value is None else round(value, 3)


def _catchup(lag: int | None, growth: float | None) -> float | None:
    if lag == 0:
        return 0.0
    return lag / -growth if lag is not None and growth is not None and growth < 0 else None


def of_group(rows: Sequence[PartitionRow], assessments: Sequence[Assessment]) -> Assessment:
    """The group is as well as its worst partition."""
    if not rows:
        return Assessment(Status.UNKNOWN, "no partition is known")
    worst = max((each.status for each in assessments), key=lambda status: status.severity)
    known_growths = [each.growth_per_second for each in assessments if each.growth_per_second is not None]
    catchups = [each.catchup_seconds for each in assessments]
    return Assessment(
        worst,
        _reason(rows, assessments, worst),
        lag_seconds=max((each.lag_seconds for each in assessments if each.lag_seconds is not None), default=None),
        growth_per_second=sum(known_growths) if known_growths else None,
        catchup_seconds=None if None in catchups else max(each for each in catchups if each is not None),
        window_complete=min(
            (each.window_complete for each in assessments if each.window_complete is not None), default=None
        ),
    )


def _reason(rows: Sequence[PartitionRow], assessments: Sequence[Assessment], worst: Status) -> str:
    if worst.severity <= Status.OK.severity:
        counts = Counter(each.status for each in assessments)
        return ", ".join(f"{count} {status.value}" for status, count in sorted(counts.items()))
    such = [pair for pair in zip(rows, assessments, strict=True) if pair[1].status is worst]
    names = ", ".join(f"{row.topic}-{row.partition}" for row, _ in such[:_NAMED])
    more = f" and {len(such) - _NAMED} more" if len(such) > _NAMED else ""
    return f"{len(such)} of {len(rows)} partitions {worst.value}: {names}{more}; {such[0][1].reason}"
