from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace as changed

from kctl.advice.window import Work
from kctl.master.advising import FleetAdviser
from kctl.master.events import Changes
from kctl.master.owners import owners
from kctl.master.snapshot import FleetSnapshot, Reduced
from kctl.reduce.base import Freshness, GroupStats
from kctl.rows.advice import Advice, Answer, Outcome
from kctl.rows.hosts import HostRow, HostsAnswer
from kctl.rows.workers import AgentState, GroupMembers, MemberRow, WorkerRow, Workers, WorkerStatus
from kctl.rpc.fan_out import Failed
from kctl.status import Assessment, Owner, Status
from kctl_agent.replies.block_size import StorageReply
from kctl_agent.replies.workers import Event, Scope, SinkerStats, WaitingFor
from tests.configurations import loaded
from tests.fleet_snapshot import UNIX, ask, partition, snapshot, worker
from tests.partitions import Row, assessments_of, columns_of


def row(name: str, **more: Any) -> WorkerRow:
    counted = {"state": AgentState.RUNNING, "batches_total": 2, "rows_total": 70, "batch_seconds_total": 1.5}
    return WorkerRow(name, name.split("-")[0], **{**counted, **more})


def fleet(**more: Any) -> FleetSnapshot:
    names = "worker-0", "worker-1", "sinker-0"
    return replace(
        snapshot(),
        supervised=more.pop("supervised", tuple(map(worker, names))),
        workers=Reduced(Workers(more.pop("rows", tuple(map(row, names)))), failed=more.pop("failed", ())),
        offset_checker=Reduced(columns_of(*more.pop("partitions", (partition(0), partition(1))))),
        block_size=Reduced(more.pop("storage", StorageReply(pending=5, processing=2))),
        **{"broker_group": GroupStats("stable", 2), "brokers": Freshness(0.5, 0.5, 5.0, None), **more},
    )


@pytest.fixture
def adviser(tmp_path: Path) -> FleetAdviser:
    return FleetAdviser(loaded(tmp_path))


HOSTS = HostsAnswer("a", "a", 1, (HostRow("a", "here", ""), HostRow("b", "present", "")))


def test_a_sample_is_what_a_snapshot_shows_of_a_fleet_and_its_hosts(adviser: FleetAdviser) -> None:
    sample = adviser._sample(fleet())

    assert (sample.keys, sample.workers, sample.sinkers, sample.pending) == ((("orders", 0), ("orders", 1)), 2, 1, 7.0)
    assert sample.work == {"worker-0": Work(2, 70, 1.5), "worker-1": Work(2, 70, 1.5)}
    assert (sample.blocked, sample.full, sample.failing, sample.workers_per_host) == ("", "", "", None)

    of_hosts = adviser._sample(fleet(hosts=HOSTS, broker_group=GroupStats("stable", 6)))
    assert (of_hosts.workers, of_hosts.workers_per_host) == (6, 2), "the members of the group"
    assert of_hosts.sinkers == 0, "those of other hosts, which empty the same storage, are not known here"

    rows = (row("worker-0"), row("sinker-0", sinker=SinkerStats(failing_seconds=9.0)))
    stuck = adviser._sample(fleet(rows=rows, storage=StorageReply(pending=5, full="no room")))
    assert (stuck.full, stuck.failing) == ("no room", "sinker-0 handles no messages: its handler fails")


BLOCKED: Sequence[tuple[dict[str, Any], str]] = (
    ({"supervised": (worker("worker-0", paused=(Scope(None, None, "ann", 0.0),)),)}, "partitions are paused"),
    ({"supervised": (worker("worker-0", desired="stopped"),)}, "no worker runs"),
    ({"rows": (row("worker-0", state=AgentState.STARTING),)}, "worker-0 is starting"),
    ({"rows": (row("worker-0", state=None, supervisor=worker("worker-0", state="backoff")),)}, "worker-0 is starting"),
    ({"rows": (row("worker-0", state=AgentState.REBALANCING),)}, "worker-0 is rebalancing"),
    ({"rows": (row("worker-0", waiting_for=WaitingFor("storage")),)}, "worker-0 waits for the storage"),
    ({"broker_group": GroupStats("preparing_rebalance", 2)}, "the group is rebalancing"),
    ({"brokers": Freshness(9.0, 9.0, 5.0, "no route")}, "the brokers do not answer: no route"),
    ({"partitions": (partition(0)._replace(age_seconds=9.0),)}, "the brokers' offsets are old"),
    ({"failed": (Failed("worker-1", "timeout", "no answer"),)}, "worker-1 does not answer"),
)


@pytest.mark.shows("no advice is given in a pause, a start, a rebalance or an outage")
@pytest.mark.parametrize(("changes", "why"), BLOCKED)
def test_no_advice_while_a_fleet_is_in_transition(adviser: FleetAdviser, changes: dict[str, Any], why: str) -> None:
    assert adviser._sample(fleet(**changes)).blocked == why
    assert adviser.seen(fleet(**changes)).sentence == f"unknown: {why}"


MORE = Advice(Answer.WORKERS, "9,000 messages/s arrive", 4, 2, workers=6, needed=6, hosts=3, since=UNIX)


def test_a_change_of_advice_and_its_outcome_are_events_and_a_gap_in_it_is_none() -> None:
    keep, unknown = changed(MORE, answer=Answer.KEEP, workers=4), Advice.unknown("the group is rebalancing", 4, 2)
    worked = changed(keep, current=6, workers=6, outcome=Outcome(1, "workers 4 -> 6 worked as expected", is_met=True))
    changes, found = Changes(0.0), []
    for advice in (unknown, keep, unknown, keep, MORE, MORE, unknown, MORE, worked, worked):
        found += [
            event.text for event in changes.between(None, replace(fleet(), advice=advice)) if event.kind == "advice"
        ]

    assert found == [
        "workers 4 -> 6: 9,000 messages/s arrive",
        "workers 4 -> 6 worked as expected",
        "keep: 9,000 messages/s arrive",
    ]


@pytest.mark.shows("the advice is served over HTTP, 503 while it is unknown, and in the status")
async def test_the_advice_is_served_and_503_while_it_is_unknown() -> None:
    known = await ask(replace(fleet(), advice=MORE), "/api/v1/advice")
    unknown = await ask(fleet(advice=Advice.unknown("partitions are paused", 4)), "/api/v1/advice")
    status = await ask(replace(fleet(), advice=MORE), "/api/v1/status")

    body = known.json()
    assert {name: body[name] for name in ("answer", "current", "workers", "hosts", "hot", "since")} == {
        "answer": "workers", "current": 4, "workers": 6, "hosts": 3, "hot": [], "since": UNIX,
    }  # fmt: skip
    assert (unknown.status_code, unknown.json()["error"]["message"]) == (503, "partitions are paused")
    assert status.json()["advice"] == "workers 4 -> 6: 9,000 messages/s arrive"


def of_worker(state: str, restarts: int = 0, error: str | None = None, kind: str = "worker") -> WorkerStatus:
    return worker("worker-0", state, kind=kind, restarts_by_cause={"signal": restarts}, last_error=error)


def seen(state: str = "running", restarts: int = 0, generation: int = 1, status: Status = Status.OK) -> FleetSnapshot:
    members = tuple(MemberRow(id_, f"worker-{n}", None, generation) for n, id_ in enumerate(("a", None)))
    return replace(
        snapshot(1),
        member_leader=Reduced(GroupMembers(None, generation, members=members)),
        supervised=(of_worker(state, restarts, "no such file"),),
        assessments=assessments_of(Assessment(status, "a reason")),
    )


def reported(before: FleetSnapshot, after: FleetSnapshot) -> list[tuple[str, str]]:
    return [(event.kind, event.text) for event in Changes(0.0).between(before, after)]


def test_rebalances_and_partitions_that_come_into_trouble_or_out_of_it_are_reported() -> None:
    assert reported(seen(), seen()) == []
    assert Changes(0.0).between(None, seen()) == []
    assert reported(seen(), seen(generation=2)) == [("rebalance", "generation 1 -> 2, 1 member")]
    assert reported(seen(), seen(status=Status.STALLED)) == [("status", "orders-0: ok -> stalled; a reason")]
    assert reported(seen(status=Status.STALLED), seen()) == [("status", "orders-0: stalled -> ok; a reason")]
    assert reported(seen(), seen(status=Status.IDLE)) == []


def test_states_and_restarts_are_reported_with_causes_and_new_errors() -> None:
    assert reported(seen(), seen("backoff")) == [("state", "worker-0: running -> backoff; no such file")]
    assert reported(seen(), seen("unkillable")) == [("state", "worker-0: running -> unkillable; no such file")]
    assert reported(seen("backoff"), seen("starting", restarts=1)) == [
        ("restart", "worker-0 is restarted: signal"),
        ("state", "worker-0: backoff -> starting"),
    ]

    before = replace(seen(), supervised=(of_worker("running"),))
    killed = "it did not leave within 30 s, and was killed"

    assert reported(before, replace(before, supervised=(of_worker("stopping", 0, "above memory_soft"),))) == [
        ("state", "worker-0: running -> stopping; above memory_soft")
    ]
    assert reported(before, replace(before, supervised=(of_worker("starting", 1, killed),))) == [
        ("restart", f"worker-0 is restarted: signal; {killed}"),
        ("state", "worker-0: running -> starting"),
    ]


def test_what_an_agent_reports_is_published_once_and_what_is_older_than_the_master_not_at_all() -> None:
    old, new = (Event(at, "rewound", f"at {at}", "orders") for at in (5.0, 15.0))
    changes = Changes(started_at=10.0)
    reporting = replace(seen(), workers=Reduced(Workers((WorkerRow("worker-0", events=(old, new)),))))

    first = changes.between(None, reporting)
    again = changes.between(seen(), reporting)

    assert [(event.worker, event.kind, event.topic, event.text) for event in first] == [
        ("worker-0", "rewound", "orders", "at 15.0")
    ]
    assert again == []


NOBODYS = partition(0, worker=None)


def owner(rows: list[WorkerRow], *statuses: WorkerStatus, of: Row | None = None, members: int | None = None) -> Owner:
    row = of or partition(0)
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
    assert owner([], of_worker("backoff"), of=NOBODYS).state == "starting"
    assert owner([in_state(AgentState.JOINING)], of_worker("running"), of=NOBODYS).state == "rebalancing"
    assert owner([in_state(AgentState.RUNNING)], of_worker("running"), of=NOBODYS).state is None
    assert owner([], of_worker("backoff", kind="sinker"), of=NOBODYS).state is None


def in_state(state: AgentState) -> WorkerRow:
    return WorkerRow("worker-0", state=state)


def test_a_paused_partition_is_paused_and_the_others_are_not() -> None:
    paused = replace(of_worker("running"), paused=(Scope("orders", 1, "ann", 0.0),))
    everything = replace(paused, paused=(Scope(None, None, "ann", 0.0),))
    rows = [in_state(AgentState.RUNNING)]

    assert owner(rows, paused, of=partition(1)).state == "paused"
    assert owner(rows, paused, of=partition(2)).state == "running"
    assert owner(rows, everything, of=partition(2)).state == "paused"
