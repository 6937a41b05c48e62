"""The state of a cluster's groups and logs, merged from many polls. The caller passes the time of each poll.

If the brokers do not answer, old values stay until they are too old. The values of a fleet's own group stay at any
age. `reduce.partitions` replaces these values if the workers report newer ones. A checkpoint's partitions stay even if
they do not exist in Kafka. A checkpoint's lag is unknown in a partition whose log is in another cluster, does not
exist, or ends before the checkpoint's offset.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import translate
from functools import lru_cache

import numpy as np

from kctl.groups.snapshot import Detail, GroupSnapshot
from kctl.kafka.client.layout import Partition
from kctl.kafka.groups import ListedGroup
from kctl.kafka.polls.cluster_reading import ClusterReading
from kctl.kafka.protocol.committed_bytes import GroupOffsets, TopicPartitions, by_topic
from kctl.rows.columns import ABSENT, Bools, Ints, Names, PartitionColumns, Rows, lag_from, rearranged
from kctl.rows.partitions import ResetPolicy

_WATCHED = ResetPolicy.EARLIEST  # Spark reads new partitions from the start of the log
_NOWHERE = by_topic({})


@dataclass(slots=True)
class KnownGroup:
    """A group, and when each of its values was reported. A time is None before the first report."""

    listed: ListedGroup
    listed_at: float
    members: int | None = None
    members_at: float | None = None
    committed_at: float | None = None
    read_at: float | None = None
    """When the offsets were read: for a checkpoint, before `committed_at`."""
    elsewhere: frozenset[str] = frozenset()
    share_lag: Mapping[Partition, int] = field(default_factory=dict)
    partitions: tuple[Partition, ...] = ()
    """Partitions with a committed offset, sorted; the same object if unchanged."""
    offsets: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    """Committed offsets in the order of `partitions`."""
    _reported: tuple[TopicPartitions, ...] = ()
    _order: Rows | None = None
    """Indices of `partitions` among the reported partitions; None: the order is the same."""

    def commit(
        self,
        committed: GroupOffsets,
        share_lag: Mapping[Partition, int],
        at: float | None,
        same: dict[Partition, Partition],
    ) -> None:
        """Replaces the committed offsets."""
        if committed.topics != self._reported:
            known = [same.setdefault(key, key) for key, _ in committed.items()]  # groups share keys to save memory
            self.partitions = tuple(sorted(known))
            order = sorted(range(len(known)), key=known.__getitem__)
            self._order = None if order == [*range(len(known))] else np.array(order, np.intp)
        self._reported = committed.topics
        self.offsets = committed.offsets if self._order is None else committed.offsets[self._order]
        self.share_lag, self.committed_at, self.read_at = share_lag, at, at

    def commit_whole(self, reading: ClusterReading, committed: GroupOffsets | None, at: float, gone: set[str]) -> None:
        """Replaces the committed offsets, and adds the topics' partitions that have no commit. If the brokers did not
        answer, pass None as `committed`: old offsets stay, except those of recreated topics (`gone`)."""
        whole = {topic: tuple(range(count)) for topic, count in reading.partitions.items()}
        for topic, number in self.partitions:
            if topic in reading.unclear_topics and topic not in reading.partitions:
                whole[topic] = (*whole.get(topic, ()), number)
        kept = ((key, offset) for key, offset in zip(self.partitions, self.offsets, strict=True) if key[0] not in gone)
        known = dict(kept if committed is None else committed.items())
        offsets = [known.get((topic, number), ABSENT) for topic, numbers in whole.items() for number in numbers]
        found = GroupOffsets(tuple(whole.items()), np.array(offsets, np.int64))
        self.commit(found, {}, self.committed_at if committed is None else at, {})


class _Logs:
    def __init__(self) -> None:
        self.places: dict[Partition, int] = {}  # partition -> its index in the columns below
        self.at = np.empty(0)
        self.end, self.start, self.stable_end, self.high_watermark = (np.empty(0, np.int64) for _ in range(4))
        self.does_not_exist = np.empty(0, np.bool_)
        """Whether the brokers have answered that a partition does not exist."""

    def choose(self, keys: Sequence[Partition]) -> None:
        rows = np.array([self.places.get(key, -1) for key in keys], np.intp)
        self.places = {key: place for place, key in enumerate(keys)}
        offsets = dict.fromkeys(("end", "start", "stable_end", "high_watermark"), ABSENT)
        for name, fill in {"at": np.nan, **offsets, "does_not_exist": False}.items():
            setattr(self, name, rearranged(getattr(self, name), rows, fill))

    def forget(self, rows: Rows | Bools) -> None:
        self.at[rows] = np.nan
        self.end[rows] = self.start[rows] = self.stable_end[rows] = self.high_watermark[rows] = ABSENT

    def add(self, reading: ClusterReading, unknown: set[Partition], at: float) -> None:
        gone = self._rows(unknown)
        self.forget(gone)
        self.does_not_exist[gone] = True
        rows = self._rows(reading.end)
        self.at[rows], self.does_not_exist[rows] = at, False
        self.stable_end[rows] = self.high_watermark[rows] = ABSENT
        for column, values in (
            (self.end, reading.end),
            (self.start, reading.start),
            (self.stable_end, reading.stable_end),
            (self.high_watermark, reading.high_watermark),
        ):
            known = values
            if not values.keys() <= self.places.keys():
                known = {key: value for key, value in values.items() if key in self.places}
            column[self._rows(known)] = np.fromiter(known.values(), np.int64, len(known))

    def _rows(self, keys: Mapping[Partition, int] | set[Partition]) -> Rows:
        found = [place for place in map(self.places.get, keys) if place is not None]
        return np.array(found, np.intp)


class KnownGroups:
    """The state of a cluster. Not thread-safe. Times are the caller's monotonic seconds."""

    def __init__(
        self, stale_after_seconds: float, own: str | None = None, reset: ResetPolicy = ResetPolicy.NONE
    ) -> None:
        """If `own` (a fleet's group) is given, keeps only this group, with every partition of the group's topics.
        `reset` decides where lag begins in a partition without a commit."""
        self.stale_after_seconds = stale_after_seconds
        self._own, self._reset = own, reset
        self.groups: dict[str, KnownGroup] = (
            {} if own is None else {own: KnownGroup(ListedGroup(own, None, None, None, -1), -np.inf)}
        )
        self._logs = _Logs()
        self._sorted: dict[str, None] = {}
        """Sorted names, because sorting thousands each time would delay all other threads."""
        self._topic_ids: dict[str, str] = {}
        self._same: dict[Partition, Partition] = {}
        self._names = Names({})
        """Names of all partitions of the groups, sorted, whether they exist or not."""
        self._places = np.empty(0, np.intp)  # index into `_logs` of each partition's log
        self._shown = self._names, np.empty(0, np.bool_), self._names
        """All names, whether each is shown, and those that are."""

    def add(self, reading: ClusterReading, at: float) -> None:
        old, new = self._topic_ids, reading.topic_ids
        recreated = {topic for topic, topic_id in new.items() if old.get(topic, topic_id) != topic_id}
        if self._own is None:
            self._add_groups(reading, at)
        else:
            self.groups[self._own].commit_whole(reading, reading.committed.get(self._own), at, recreated)
        self._find_logs()
        if recreated:
            places = [place for key, place in self._logs.places.items() if key[0] in recreated]
            self._logs.forget(np.array(places, np.intp))
        self._topic_ids = old | new
        self._logs.add(reading, reading.unknown if self._own is None else set(), at)

    def forget(self, now: float) -> None:
        """Drops groups and log offsets that are too old to show. Drops partitions that no group reads any more."""
        limit = now - self.stale_after_seconds
        self.groups = {name: group for name, group in self.groups.items() if group.listed_at >= limit}
        self._find_logs()
        self._logs.forget(self._logs.at < limit)

    def members(self, group: KnownGroup, now: float) -> int | None:
        is_stale = group.members_at is None or now - group.members_at > self.stale_after_seconds
        return None if is_stale else group.members

    def partitions(self, now: float, reads_committed: Callable[[str], bool]) -> PartitionColumns:
        """Returns the groups' partitions, sorted by group. Leaves out groups whose offsets are too old. Leaves out
        partitions that do not exist, except those of checkpoints.

        If a partition's log offsets are missing or too old, its end and lag are unknown. If `reads_committed` is true
        for a group, the group's lag ends at the last stable offset.
        """
        names, logs, places = self._names, self._logs, self._places
        groups, limit = [self.groups[name] for name in names.groups], now - self.stale_after_seconds
        committed_at = names.spread(np.array([_time(each.committed_at) for each in groups]))
        read_at = names.spread(np.array([_time(each.read_at) for each in groups]))
        is_watched = names.spread(np.array([each.listed.type == "checkpoint" for each in groups], np.bool_))
        log_at, end = np.where(_is_elsewhere(groups), np.nan, logs.at[places]), logs.end[places]
        if any(map(reads_committed, names.groups)):
            is_stable = names.spread(np.array([reads_committed(name) for name in names.groups]))
            end = np.where(is_stable, logs.stable_end[places], end)
        committed = np.concatenate([np.empty(0, np.int64), *(each.offsets for each in groups)])
        share_lag = _share_lag(groups)
        start, end = (np.where(np.isnan(log_at), ABSENT, each) for each in (logs.start[places], end))
        # Unknown partitions have no lag.
        reset = ResetPolicy.NONE if np.isnan(committed_at).any() else self._reset
        first = lag_from(committed, start, None, reset)
        if is_watched.any():
            of_query = np.where((end != ABSENT) & (committed > end), ABSENT, lag_from(committed, start, None, _WATCHED))
            first = np.where(is_watched, of_query, first)
        columns = PartitionColumns(
            names,
            now,
            at=np.fmin(log_at, read_at),
            start=start,
            committed=committed,
            lag_from=_of_shares(first, end, share_lag),
            end=end,
            share_lag=share_lag,
            behind_transaction=None if self._own is None else _behind(end, logs.high_watermark[places]),
        )
        is_shown = (committed_at >= limit) & (is_watched | ~(logs.does_not_exist[places] & np.isnan(log_at)))
        if self._own is not None:
            is_shown = ~np.isnan(columns.at)
        if is_shown.all():
            return columns
        known, was_shown, shown = self._shown
        if not (known is names and np.array_equal(was_shown, is_shown)):
            shown = names.only(is_shown)
            self._shown = names, is_shown, shown
        return columns.chosen(shown, np.flatnonzero(is_shown))

    def _add_groups(self, reading: ClusterReading, at: float) -> None:
        if reading.is_listed_in_full:
            self.groups = {
                name: group for name, group in self.groups.items() if name in reading.groups or name in reading.unclear
            }
        for name, listed in reading.groups.items():
            group = self.groups.get(name)
            if group is None:
                group = self.groups[name] = KnownGroup(listed, at)
            group.listed, group.listed_at = listed, at
            if name in reading.members:
                group.members, group.members_at = reading.members[name], at
            if name in reading.committed:
                committed, elsewhere = reading.committed[name], reading.elsewhere.get(name, _NOWHERE)
                group.elsewhere = frozenset(topic for topic, _ in elsewhere.topics)
                group.commit(committed.with_more(elsewhere), reading.share_lag.get(name, {}), at, self._same)
                group.read_at = reading.read_at.get(name, at)

    def _find_logs(self) -> None:
        if self.groups.keys() != self._sorted.keys():
            self._sorted = dict.fromkeys(sorted(self.groups))
        keys = {name: self.groups[name].partitions for name in self._sorted}
        if self._names.is_of(keys):
            return
        self._names = Names(keys)
        self._same = {key: key for key in self._names.keys}
        self._logs.choose(list(self._same))
        self._places = np.array(list(map(self._logs.places.__getitem__, self._names.keys)), np.intp)


def _time(at: float | None) -> float:
    return np.nan if at is None else at


def _is_elsewhere(groups: Sequence[KnownGroup]) -> Bools | np.bool_:
    if not any(each.elsewhere for each in groups):
        return np.bool_(False)
    return np.array([topic in each.elsewhere for each in groups for topic, _ in each.partitions], np.bool_)


def _share_lag(groups: Sequence[KnownGroup]) -> Ints | None:
    if not any(each.share_lag for each in groups):
        return None
    return np.array([each.share_lag.get(key, ABSENT) for each in groups for key in each.partitions], np.int64)


def _of_shares(first: Ints, end: Ints, share_lag: Ints | None) -> Ints:
    return first if share_lag is None else np.where((share_lag != ABSENT) & (end != ABSENT), end - share_lag, first)


def _behind(end: Ints, high_watermark: Ints) -> Ints:
    is_known = (high_watermark != ABSENT) & (end != ABSENT)
    return np.where(is_known, np.maximum(high_watermark - end, 0), ABSENT)


def fits(patterns: Sequence[str]) -> Callable[[str], bool]:
    """Returns a function that checks whether a name matches one of the patterns. A pattern is a glob such as
    `payments-*`, or a regular expression between slashes such as `/payments-(eu|us)/`. The expression must match the
    whole name. Raises ValueError for an invalid regular expression."""
    if not patterns:
        return lambda _: False
    expression = re.compile("|".join(f"(?:{_compiled(pattern).pattern})" for pattern in patterns), re.DOTALL)
    return lru_cache(200_000)(lambda name: expression.fullmatch(name) is not None)


def name_filter(allow: Sequence[str], deny: Sequence[str]) -> Callable[[str], bool]:
    allows_all, allows, denies = "*" in allow, fits(allow), fits(deny)
    return lambda name: (allows_all or allows(name)) and not denies(name)


def _compiled(pattern: str) -> re.Pattern[str]:
    if len(pattern) > 1 and pattern.startswith("/") and pattern.endswith("/"):
        try:
            return re.compile(pattern[1:-1])
        except re.error as error:
            raise ValueError(f"{pattern} is not a regular expression: {error}") from None
    return re.compile(translate(pattern))


def detail_of(without_partitions: Sequence[str], without_topics: Sequence[str]) -> Callable[[str], Detail]:
    """Returns a function that maps a group's name to the smallest unit with metrics: partition, topic or group. Raises
    ValueError for an invalid pattern."""
    no_partitions, no_topics = fits(without_partitions), fits(without_topics)

    def detail(group: str) -> Detail:
        if no_topics(group):
            return "group"
        return "topic" if no_partitions(group) else "partition"

    return detail


def bounded(groups: tuple[GroupSnapshot, ...], max_partitions: int) -> tuple[tuple[GroupSnapshot, ...], int]:
    """Limits the largest groups to metrics by topic, so that at most `max_partitions` partitions have their own metrics
    (0: no limit). Also returns how many groups it has limited."""
    shown = [group for group in groups if group.detail == "partition"]
    left = sum(len(group.partitions) for group in shown) - max_partitions
    if max_partitions == 0 or left <= 0:
        return groups, 0
    cut = set()
    for group in sorted(shown, key=lambda each: (-len(each.partitions), each.group)):
        if left <= 0:
            break
        cut.add(group.group)
        left -= len(group.partitions)
    return tuple(replace(each, detail="topic") if each.group in cut else each for each in groups), len(cut)
