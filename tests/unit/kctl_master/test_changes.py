from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from types import MappingProxyType

from kctl.master.changes import Changes
from kctl.master.owners import owners
from kctl.master.snapshot import FleetSnapshot, Reduced
from kctl.rows.workers import AgentState, GroupMembers, MemberRow, WorkerRow, Workers, WorkerStatus
from kctl.status import Assessment, Owner, Status
from kctl_agent.replies.workers import Event, Scope, WaitingFor
from tests import fleet_snapshot
from tests.partitions import Row, assessments_of


def worker(state: str, restarts: int = 0, error: str | None = None, kind: str = "worker") -> WorkerStatus:
    counts = MappingProxyType({"signal": restarts})
    return WorkerStatus("worker-0", kind, "running", state, 1, 1.0, counts, None, error, "log")


def partition(number: int = 0, owner: str | None = "worker-0") -> Row:
    return Row("orders", number, 0, 1, 1, 1, None, owner, 1, 0.0)


def snapshot(
    state: str = "running",
    restarts: int = 0,
    generation: int = 1,
    status: Status = Status.OK,
    events: Iterable[Event] = (),
) -> FleetSnapshot:
    members = tuple(MemberRow(id_, f"worker-{n}", None, generation) for n, id_ in enumerate(("a", None)))
    return replace(
        fleet_snapshot.snapshot(1),
        member_leader=Reduced(GroupMembers(None, generation, members=members)),
        workers=Reduced(Workers((WorkerRow("worker-0", events=tuple(events)),))),
        supervised=(worker(state, restarts, "no such file"),),
        assessments=assessments_of(Assessment(status, "a reason")),
    )


def reported(before: FleetSnapshot, after: FleetSnapshot) -> list[tuple[str, str]]:
    return [(event.kind, event.text) for event in Changes(0.0).between(before, after)]


def test_rebalances_and_partitions_that_come_into_trouble_or_out_of_it_are_reported() -> None:
    assert reported(snapshot(), snapshot()) == []
    assert Changes(0.0).between(None, snapshot()) == []
    assert reported(snapshot(), snapshot(generation=2)) == [("rebalance", "generation 1 -> 2, 1 member")]
    assert reported(snapshot(), snapshot(status=Status.STALLED)) == [("status", "orders-0: ok -> stalled; a reason")]
    assert reported(snapshot(status=Status.STALLED), snapshot()) == [("status", "orders-0: stalled -> ok; a reason")]
    assert reported(snapshot(), snapshot(status=Status.IDLE)) == []


def test_states_and_restarts_are_reported_with_causes_and_new_errors() -> None:
    assert reported(snapshot(), snapshot("backoff")) == [("state", "worker-0: running -> backoff; no such file")]
    assert reported(snapshot(), snapshot("unkillable")) == [("state", "worker-0: running -> unkillable; no such file")]
    assert reported(snapshot("backoff"), snapshot("starting", restarts=1)) == [
        ("restart", "worker-0 is started again: signal"),
        ("state", "worker-0: backoff -> starting"),
    ]

    before = replace(snapshot(), supervised=(worker("running"),))
    killed = "it did not leave within 30 s, and was killed"

    assert reported(before, replace(before, supervised=(worker("stopping", 0, "above memory_soft"),))) == [
        ("state", "worker-0: running -> stopping; above memory_soft")
    ]
    assert reported(before, replace(before, supervised=(worker("starting", 1, killed),))) == [
        ("restart", f"worker-0 is started again: signal; {killed}"),
        ("state", "worker-0: running -> starting"),
    ]


def test_what_an_agent_reports_is_published_once_and_what_is_older_than_the_master_not_at_all() -> None:
    old, new = (Event(at, "rewound", f"at {at}", "orders") for at in (5.0, 15.0))
    changes = Changes(started_at=10.0)

    first = changes.between(None, snapshot(events=[old, new]))
    again = changes.between(snapshot(), snapshot(events=[old, new]))

    assert [(event.worker, event.kind, event.topic, event.text) for event in first] == [
        ("worker-0", "rewound", "orders", "at 15.0")
    ]
    assert again == []


NOBODYS = partition(owner=None)


def owner(rows: list[WorkerRow], *statuses: WorkerStatus, of: Row | None = None, members: int | None = None) -> Owner:
    row = of or partition()
    return owners(rows, statuses, 30.0, members)(row[:2], row.worker, row.behind_transaction or 0)


def test_an_owner_is_what_it_or_the_fleet_reports() -> None:
    row = WorkerRow("worker-0", state=AgentState.RUNNING, last_batch_seconds=2)

    assert owner([row]) == Owner("worker-0", "running", 30.0, 2.0, None)
    assert owner([WorkerRow("worker-0")]) == Owner("worker-0", None, 30.0)
    waiting = WorkerRow("worker-0", waiting_for=WaitingFor("engine", "its JVM died", 1.0))
    assert owner([waiting]).waits_for == "engine"
    assert owner([WorkerRow("worker-0", "attached", AgentState.RUNNING)]).trigger_seconds is None
    assert owner([], of=NOBODYS, members=2) == Owner(None, None, 30.0, members=2)
    assert owner([], of=NOBODYS).members is None
    assert owner([], worker("backoff"), of=NOBODYS).state == "starting"
    assert owner([in_state(AgentState.JOINING)], worker("running"), of=NOBODYS).state == "rebalancing"
    assert owner([in_state(AgentState.RUNNING)], worker("running"), of=NOBODYS).state is None
    assert owner([], worker("backoff", kind="sinker"), of=NOBODYS).state is None


def in_state(state: AgentState) -> WorkerRow:
    return WorkerRow("worker-0", state=state)


def test_a_paused_partition_is_paused_and_the_others_are_not() -> None:
    paused = replace(worker("running"), paused=(Scope("orders", 1, "ann", 0.0),))
    everything = replace(paused, paused=(Scope(None, None, "ann", 0.0),))
    rows = [in_state(AgentState.RUNNING)]

    assert owner(rows, paused, of=partition(1)).state == "paused"
    assert owner(rows, paused, of=partition(2)).state == "running"
    assert owner(rows, everything, of=partition(2)).state == "paused"
