"""What has happened between two pictures of the fleet. Pure, but for what each agent has told already."""

from __future__ import annotations

from collections.abc import Iterator

from kctl.master.events import FleetEvent
from kctl.master.snapshot import FleetSnapshot
from kctl.status import Status
from kctl_agent.messages import number_of
from kctl_agent.wire import JsonObject

__all__ = ["Changes"]

_TOLD_ONE_BY_ONE = 20
_SELDOM = frozenset({Status.WARN, Status.STALLED, Status.STOPPED, Status.REWIND})


class Changes:
    """Compares each picture with the one before; not thread-safe."""

    def __init__(self, started_at: float) -> None:
        self._started_at = started_at
        self._told: dict[str, float] = {}

    def between(self, before: FleetSnapshot | None, after: FleetSnapshot) -> list[FleetEvent]:
        """Ordered by time. `before` is None for the first picture."""
        events = list(self._of_agents(after))
        if before is not None:
            events += [*_of_supervisor(before, after), *_of_group(before, after), *_of_partitions(before, after)]
        return sorted(events, key=lambda event: event.at)

    def _of_agents(self, after: FleetSnapshot) -> Iterator[FleetEvent]:
        reduced = after.commands.get("workers")
        for row in reduced.result["rows"] if reduced is not None else ():
            name, told = str(row.get("name")), self._told.get(str(row.get("name")), self._started_at)
            for event in _objects(row.get("events")):
                at = event.get("at")
                if isinstance(at, int | float) and at > told:
                    self._told[name] = max(self._told.get(name, at), at)
                    yield _told_by(name, event, float(at))


def _objects(events: object) -> list[JsonObject]:
    """An attached agent may say anything."""
    return [event for event in events if isinstance(event, dict)] if isinstance(events, list) else []


def _told_by(worker: str, event: JsonObject, at: float) -> FleetEvent:
    kind, text = str(event.get("kind")), str(event.get("text"))
    return FleetEvent(
        at, kind, text, worker, event.get("topic"), event.get("partition"), event.get("from"), event.get("to")
    )


def _of_supervisor(before: FleetSnapshot, after: FleetSnapshot) -> Iterator[FleetEvent]:
    former = {worker.name: worker for worker in before.workers}
    for worker in after.workers:
        old = former.get(worker.name)
        if old is None:
            continue
        for cause, count in worker.restarts.items():
            if count > old.restarts.get(cause, 0):
                text = f"{worker.name} is started again: {cause}"
                yield FleetEvent(after.taken_at_unix, "restart", text, worker.name)
        if worker.state != old.state:
            why = f"; {worker.last_error}" if worker.last_error and worker.state in ("backoff", "fatal") else ""
            text = f"{worker.name}: {old.state} -> {worker.state}{why}"
            yield FleetEvent(after.taken_at_unix, "state", text, worker.name)


def _of_group(before: FleetSnapshot, after: FleetSnapshot) -> Iterator[FleetEvent]:
    old, new = (snapshot.commands.get("member_leader") for snapshot in (before, after))
    generations = [reduced.result.get("generation") if reduced else None for reduced in (old, new)]
    if generations[1] is not None and generations[0] is not None and generations[0] != generations[1]:
        assert new is not None
        members = sum(member["member_id"] is not None for member in new.result["members"])
        text = f"generation {generations[0]} -> {generations[1]}, {number_of(members, 'member')}"
        yield FleetEvent(after.taken_at_unix, "rebalance", text)
    statuses = before.group_assessment.status, after.group_assessment.status
    if statuses[0] is not statuses[1]:
        text = f"{after.group}: {statuses[0].value} -> {statuses[1].value}; {after.group_assessment.reason}"
        yield FleetEvent(after.taken_at_unix, "status", text)


def _of_partitions(before: FleetSnapshot, after: FleetSnapshot) -> list[FleetEvent]:
    """A change into or out of trouble. When a whole topic changes at once, the group's own event says it."""
    former = {
        (row.topic, row.partition): assessment.status
        for row, assessment in zip(before.partitions, before.assessments, strict=False)
    }
    events = []
    for row, assessment in zip(after.partitions, after.assessments, strict=False):
        old, new = former.get((row.topic, row.partition)), assessment.status
        if old is not None and old is not new and not _SELDOM.isdisjoint((old, new)):
            text = f"{row.topic}-{row.partition}: {old.value} -> {new.value}; {assessment.reason}"
            events.append(FleetEvent(after.taken_at_unix, "status", text, row.worker, row.topic, row.partition))
    return events[:_TOLD_ONE_BY_ONE]
