"""Finds the events between two snapshots of the fleet. Keeps the latest events, and counts all events by kind."""

import asyncio
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping

from kctl.master.snapshot import FleetSnapshot
from kctl.rows.advice import Advice, Answer
from kctl.rows.verdict import Level
from kctl.status import Status
from kctl_agent.replies.workers import Event
from kctl_agent.rpc.messages import number_of

KEPT = 500
_NO_MARKS = frozenset({"verdict", "state", "status"})


class EventFeed:
    """The fleet's events, numbered from 1. Belongs to one event loop. The master reports the kinds `verdict`,
    `state`, `restart`, `rebalance`, `status`, `operation` and `advice`. Agents report others, such as `rewound`."""

    def __init__(self) -> None:
        self._events: deque[tuple[int, Event]] = deque(maxlen=KEPT)
        self._marks: deque[Event] = deque(maxlen=KEPT)
        self._totals: Counter[str] = Counter()
        self.last_number = 0
        self.collections = 0
        self._changed = asyncio.Event()

    def totals(self) -> Mapping[str, int]:
        return dict(self._totals)

    def publish(self, events: Iterable[Event]) -> None:
        for event in events:
            self.last_number += 1
            self._events.append((self.last_number, event))
            if event.kind not in _NO_MARKS:
                self._marks.append(event)
            self._totals[event.kind] += 1

    def collected(self) -> None:
        """Counts a collected snapshot and wakes `wait_beyond`. Call it after publishing the snapshot's events."""
        self.collections += 1
        self._changed.set()
        self._changed = asyncio.Event()

    def since(self, number: int) -> list[tuple[int, Event]]:
        return [(its, event) for its, event in self._events if its > number]

    def marks(self, since: float, until: float) -> list[Event]:
        """Returns the events between two Unix times, without the frequent kinds `verdict`, `state` and `status`."""
        return [event for event in self._marks if since <= event.at <= until]

    async def wait_beyond(self, collections: int) -> int:
        """Waits until the number of collected snapshots exceeds `collections`, and returns this number."""
        while self.collections <= collections:
            await self._changed.wait()
        return self.collections


_MOST_EVENTS = 20
_IN_TROUBLE = frozenset({Status.WARN, Status.STALLED, Status.STOPPED, Status.REWIND})


class Changes:
    """Finds the events between each snapshot and the previous one. Not thread-safe."""

    def __init__(self, started_at: float) -> None:
        self._started_at = started_at
        self._reported: dict[str, float] = {}
        self._advice: Advice | None = None  # the last advice that was not unknown

    def between(self, before: FleetSnapshot | None, after: FleetSnapshot) -> list[Event]:
        events = [*self._of_agents(after), *self._of_advice(after)]
        if before is not None:
            events += [*_of_supervisor(before, after), *_of_group(before, after), *_of_partitions(before, after)]
        return sorted(events, key=lambda event: event.at)

    def _of_agents(self, after: FleetSnapshot) -> Iterator[Event]:
        for row in after.workers.result.rows:
            reported = self._reported.get(row.name, self._started_at)
            for event in row.events:
                if event.at > reported:
                    self._reported[row.name] = max(self._reported.get(row.name, event.at), event.at)
                    yield _reported_by(row.name, event)

    def _of_advice(self, after: FleetSnapshot) -> Iterator[Event]:
        old, new = self._advice, after.advice
        if new.answer is Answer.UNKNOWN:
            return
        self._advice = new
        if new.outcome is not None and (old is None or new.outcome != old.outcome):
            yield Event(after.taken_at_unix, "advice", new.outcome.text)
        if new.answer is not Answer.KEEP if old is None else not new.asks_as(old):
            yield Event(after.taken_at_unix, "advice", new.sentence)


def _reported_by(worker: str, event: Event) -> Event:
    offsets = event.from_offset, event.to
    return Event(event.at, event.kind, event.text, event.topic, event.partition, *offsets, worker)


def _of_supervisor(before: FleetSnapshot, after: FleetSnapshot) -> Iterator[Event]:
    former = {worker.name: worker for worker in before.supervised}
    for worker in after.supervised:
        old = former.get(worker.name)
        if old is None:
            continue
        error = f"; {worker.last_error}" if worker.last_error else ""
        new = error if worker.last_error != old.last_error else ""
        for cause, count in worker.restarts_by_cause.items():
            if count > old.restarts_by_cause.get(cause, 0):
                text, new = f"{worker.name} is restarted: {cause}{new}", ""
                yield Event(after.taken_at_unix, "restart", text, worker=worker.name)
        if worker.state != old.state:
            why = error if worker.state in ("backoff", "fatal", "unkillable") else new
            text = f"{worker.name}: {old.state} -> {worker.state}{why}"
            yield Event(after.taken_at_unix, "state", text, worker=worker.name)


def _of_group(before: FleetSnapshot, after: FleetSnapshot) -> Iterator[Event]:
    old, new = before.member_leader.result, after.member_leader.result
    if new.generation is not None and old.generation is not None and old.generation != new.generation:
        members = sum(member.member_id is not None for member in new.members)
        text = f"generation {old.generation} -> {new.generation}, {number_of(members, 'member')}"
        yield Event(after.taken_at_unix, "rebalance", text)
    old_verdict, verdict = before.verdict, after.verdict
    if (old_verdict.level, old_verdict.main.about) != (verdict.level, verdict.main.about):
        over = f" (before: {old_verdict.main.reason})" if verdict.level is Level.OK else ""
        old_level = "still" if old_verdict.level is verdict.level else f"{old_verdict.level} ->"
        text = f"{old_level} {verdict.sentence}{over}"
        yield Event(after.taken_at_unix, "verdict", text)


def _of_partitions(before: FleetSnapshot, after: FleetSnapshot) -> list[Event]:
    former = dict(zip(before.offset_checker.result.names.keys, before.own_assessments.statuses(), strict=False))
    events = []
    for number, (key, new) in enumerate(
        zip(after.offset_checker.result.names.keys, after.own_assessments.statuses(), strict=False)
    ):
        old = former.get(key)
        if old is not None and old is not new and not _IN_TROUBLE.isdisjoint((old, new)):
            row, reason = after.partitions[number], after.assessments[number].reason
            text = f"{row.topic}-{row.partition}: {old.value} -> {new.value}; {reason}"
            events.append(Event(after.taken_at_unix, "status", text, row.topic, row.partition, worker=row.worker))
    return events[:_MOST_EVENTS]  # if a whole topic changes, the event about the verdict reports it
