from collections.abc import Callable
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest

from kctl.master.events import Changes
from kctl.master.snapshot import FleetSnapshot, Reduced
from kctl.master.verdict import Verdicts, judge
from kctl.reduce.base import Freshness
from kctl.rows.hosts import HostsAnswer
from kctl.rows.verdict import Level
from kctl.rows.workers import AgentState, Pings, WorkerRow, Workers, WorkerStatus
from kctl.rpc.fan_out import Failed
from kctl.status import Assessment, Status
from kctl.status.unhandled import Unhandled
from kctl_agent.replies.block_size import StorageReply
from kctl_agent.replies.partitions import PartitionMetadata, TopicsReply
from kctl_agent.replies.workers import PingReply, SinkerStats, WaitingFor
from tests.fleet_snapshot import TAKEN_AT, UNIX, judged, partition, snapshot, worker
from tests.partitions import columns_of

NAMES = {"worker-0": "worker", "worker-1": "worker", "sinker-0": "sinker", "engine": "engine"}
AT = "since 2023-11-14T22:13:18Z"


def status(name: str, state: str = "running", **more: Any) -> WorkerStatus:
    restarts = MappingProxyType({"signal": more.pop("restarts", 1)})
    return worker(name, state, **{"restarts_by_cause": restarts, "since_seconds": 60.0, **more})


def row(name: str, **more: Any) -> WorkerRow:
    return WorkerRow(name, NAMES[name], **{"state": AgentState.RUNNING, "age_seconds": 0.3, **more})


def fleet(states: dict[str, WorkerStatus] | None = None, rows: dict[str, WorkerRow] | None = None) -> FleetSnapshot:
    ok = Assessment(Status.OK, "3 ok")
    return replace(
        snapshot(),
        supervised=tuple((states or {}).get(name, status(name)) for name in NAMES),
        workers=Reduced(Workers(tuple((rows or {}).get(name, row(name)) for name in NAMES))),
        group_assessment=ok,
        offset_checker=Reduced(columns_of(partition(0))),
        block_size=Reduced(StorageReply(pending=0, processing=0)),
    )


def changed(name: str, state: str, **more: Any) -> FleetSnapshot:
    return fleet({name: status(name, state, **more)})


def reporting(name: str, **more: Any) -> FleetSnapshot:
    return fleet(rows={name: row(name, **more)})


def of_group(status: Status) -> FleetSnapshot:
    return replace(fleet(), group_assessment=Assessment(status, "1 of 3 partitions worse: t-0; a reason"))


def of_storage(**stats: Any) -> FleetSnapshot:
    return replace(fleet(), block_size=Reduced(StorageReply(**stats)))


def of_brokers(age: float | None, complete: float | None, error: str | None, row_age: float = 9.0) -> FleetSnapshot:
    rows = columns_of(partition(0)._replace(age_seconds=row_age))
    return replace(fleet(), brokers=Freshness(age, complete, 5.0, error), offset_checker=Reduced(rows))


def silent(*names: str, seconds: float = 6.0) -> FleetSnapshot:
    failed = tuple(Failed(name, "timeout", "no answer") for name in names)
    return replace(
        fleet(), ping=Reduced(Pings(()), failed=failed), since={(name, "silent"): TAKEN_AT - seconds for name in names}
    )


def waiting(what: str, *names: str, seconds: float = 6.0) -> FleetSnapshot:
    rows = {name: row(name, waiting_for=WaitingFor(what, "refused", UNIX - 60)) for name in names}
    return replace(fleet(rows=rows), since={(name, what): TAKEN_AT - seconds for name in names})


def full(seconds: float) -> FleetSnapshot:
    return replace(of_storage(full=FULL, pending=1000), since={("storage", "full"): TAKEN_AT - seconds})


def changing(name: str, state: str, **more: Any) -> FleetSnapshot:
    """Restarts one process on request. Only worker-1 has another process of its kind."""
    states = {name: status(name, state, is_requested=True, **more)}
    rows = {name: WorkerRow(name, NAMES[name], state=AgentState.JOINING if state == "running" else None)}
    return fleet(states, rows)


def not_handled(seconds: float, pending: int = 7) -> FleetSnapshot:
    stats = SinkerStats(failing_seconds=seconds, recent_tries=6, recent_failures=6, error_class="KeyError")
    sinker = row("sinker-0", last_error="the handler raised KeyError: 'card 4111'", sinker=stats)
    stored = StorageReply(pending=pending, processing=0, dead=3)
    return replace(fleet(rows={"sinker-0": sinker}), block_size=Reduced(stored))


def hung(seconds: float, state: AgentState = AgentState.RUNNING) -> FleetSnapshot:
    pings = Pings((PingReply(1, "worker-1", main_thread_age_seconds=seconds),))
    return replace(reporting("worker-1", state=state, batches_total=7), ping=Reduced(pings))


def late(**unhandled: Any) -> FleetSnapshot:
    storage = StorageReply(pending=840, delayed=12, processing=10, oldest_seconds=75.0)
    oldest = replace(fleet().group_assessment, oldest_unhandled_seconds=75.0)
    return replace(
        fleet(), block_size=Reduced(storage), group_assessment=oldest, unhandled=Unhandled(75.0, 60.0, **unhandled)
    )


PARKED = "850 messages wait in the storage, 12 of them for their next try"
REPLICAS = TopicsReply(
    (PartitionMetadata("t", 0, 1, (1, 2, 3), (1, 2), ()), PartitionMetadata("t", 1, 2, (2, 1), (1, 2), ()))
)
ALL_FATAL = fleet({name: status(name, "fatal") for name in ("worker-0", "worker-1")})
ALL_NEW = fleet({name: status(name, "starting", restarts=0) for name in ("worker-0", "worker-1")})
FULL = "1000 of 1000 messages"
RESTARTED = "it restarts automatically; `kctl logs engine` shows why it ended"
RUNS = "everything is running; 3 ok"
WELL = f"ok: {RUNS}"
ALL_DOWN = f"failing: no worker has worked {AT}: "
NO_DATA = "no data since 2023-11-14T22:13:18Z: the master no longer collects"
ONE_DOWN = f"degraded: 1 of 2 workers has not worked {AT}: "


HEALTHY = (
    fleet(),
    changed("worker-1", "stopped", desired="stopped"),
    *(not_handled(seconds, pending=0) for seconds in (20.0, 40.0)),
    reporting("worker-1", state=AgentState.ASSIGNED, batches_total=7),
    reporting("worker-0", state=AgentState.THROTTLED, last_error=FULL),
    reporting("worker-1", state=None),
    silent("worker-0", seconds=4.0),
    waiting("storage", "worker-0", seconds=4.0),
    hung(7.0, AgentState.REBALANCING),
)
GROUPS = {"degraded": (Status.REBALANCING, Status.WARN), "unknown": (Status.UNKNOWN,), "failing": (Status.STOPPED,)}
NO_SINKER = replace(full(6.0), supervised=(status("worker-0"),))
STOPPED_SINKER = replace(full(6.0), supervised=(status("worker-0"), status("sinker-0", "stopped", desired="stopped")))
NEW_ROW, SILENT_ROW = ({"worker-1": row("worker-1", state=state)} for state in (AgentState.STARTING, None))
BOTH_FAILED = {name: row(name, last_error=error) for name, error in (("worker-0", "no space left"), ("sinker-0", "x"))}
TROUBLES: tuple[tuple[FleetSnapshot, str], ...] = (
    (
        not_handled(40.0),
        "degraded: no message was handled since 2023-11-14T22:12:38Z: 6 of 6 tries failed in the last minute, "
        "KeyError; `kctl logs sinker-0` shows more",
    ),
    (
        late(is_late=True),
        f"degraded: messages have waited too long {AT}: the oldest unhandled message is 75 s old, "
        f"the limit (status.oldest_limit) is 60 s; {PARKED}",
    ),
    (late(is_catching_up=True), f"{WELL}; catching up: the oldest unhandled message is 75 s old; {PARKED}"),
    (late(), f"{WELL}; {PARKED}"),
    (of_group(Status.PAUSED), "ok: everything is running; 1 of 3 partitions worse: t-0; a reason"),
    (of_brokers(6.0, 9.0, "refused"), "failing: no Kafka broker has answered since 2023-11-14T22:13:12Z: refused"),
    (of_brokers(6.0, 9.0, None, 0.2), "degraded: no Kafka broker has answered the master since 2023-11-14T22:13:12Z"),
    (
        of_brokers(0.5, 8.0, "offsets: t-1"),
        "degraded: the Kafka brokers have not answered all requests since 2023-11-14T22:13:10Z: offsets: t-1",
    ),
    (
        replace(fleet(), brokers=Freshness(0.5, 0.5, 5.0, None, are_just_back=True)),
        f"degraded: the Kafka brokers are back, and replicas have been unknown {AT}",
    ),
    (of_brokers(None, None, None), f"unknown: no Kafka broker has answered {AT}"),
    (of_brokers(None, None, "refused"), f"failing: no Kafka broker has answered {AT}: refused"),
    (
        replace(fleet(), brokers=Freshness(0.5, 0.5, 5.0, None, ("orders",))),
        f"failing: topic orders has not existed {AT}: create it again (`kctl kafka create-topic orders`), or take "
        "it out of kafka.topics and start the fleet again",
    ),
    (full(6.0), f"failing: the storage has been full {AT}: {FULL}"),
    (full(1.0), f"degraded: the storage has been full {AT}: {FULL}"),
    (
        STOPPED_SINKER,
        f"failing: the storage has been full {AT}: {FULL}; all sinkers are stopped: `kctl start sinker-0`",
    ),
    (
        NO_SINKER,
        f"failing: the storage has been full {AT}: {FULL}; no sinker takes messages out: set sinkers.handler, then "
        "`kctl reload` and `kctl scale sinkers=2`",
    ),
    (of_storage(pending=3, age_seconds=7.0), "failing: the storage has not answered since 2023-11-14T22:13:11Z"),
    (of_storage(pending=3, age_seconds=2.0), f"{WELL}; 3 messages wait in the storage"),
    (of_storage(error="refused"), f"failing: the storage has not answered {AT}: refused"),
    (changed("engine", "backoff"), f"failing: the engine has not run {AT}: engine is in backoff; {RESTARTED}"),
    (
        changed("engine", "fatal"),
        f"failing: the engine has not run {AT}: engine is fatal; correct what `kctl logs engine` shows, then "
        "`kctl start engine`",
    ),
    (changed("worker-1", "backoff"), f"{ONE_DOWN}worker-1 is in backoff; `kctl logs worker-1` shows more"),
    (changed("worker-1", "unkillable", desired="stopped"), f"{ONE_DOWN}worker-1 is unkillable"),
    (
        ALL_FATAL,
        f"{ALL_DOWN}worker-0 is fatal; worker-1 is fatal; correct what `kctl logs worker-0` shows, then "
        "`kctl start worker-0`",
    ),
    (ALL_NEW, f"unknown: no worker has worked {AT}: worker-0 is starting; worker-1 is starting"),
    (fleet({"worker-1": status("worker-1", restarts=0)}, NEW_ROW), f"{ONE_DOWN}worker-1 is starting"),
    (fleet({"worker-1": status("worker-1", since_seconds=1.0)}, SILENT_ROW), f"{ONE_DOWN}worker-1 is starting"),
    (reporting("worker-1", state=AgentState.JOINING, batches_total=7), f"{ONE_DOWN}worker-1 is joining the group"),
    (reporting("worker-1", state=AgentState.ASSIGNED, batches_total=0), f"{ONE_DOWN}worker-1 is starting its query"),
    (
        changed("sinker-0", "fatal"),
        f"failing: no sinker has worked {AT}: sinker-0 is fatal; correct what `kctl logs sinker-0` shows, then "
        "`kctl start sinker-0`",
    ),
    (fleet(rows=BOTH_FAILED), f"{ONE_DOWN}worker-0: no space left"),
    (reporting("worker-0", age_seconds=7.2), f"{ONE_DOWN}worker-0 has published nothing for 7 s"),
    (silent("worker-0", "worker-1"), f"{ALL_DOWN}worker-0 does not answer; worker-1 does not answer"),
    (silent("guest"), f"degraded: 1 attached agent silent {AT}: guest"),
    (hung(7.0), f"{ONE_DOWN}the main thread of worker-1 hangs"),
    (
        replace(fleet(), kept={"metadata_topics": Reduced(REPLICAS)}),
        f"degraded: 1 of 2 partitions has lacked in-sync replicas {AT}: those of broker 3",
    ),
    *(
        (of_group(each), f"{level}: 1 of 3 partitions worse {AT}: t-0; a reason")
        for level, statuses in GROUPS.items()
        for each in statuses
    ),
)


@pytest.mark.shows("page, CLI, API, `/readyz`, metrics and events show one verdict with its reason and time")
@pytest.mark.parametrize(("taken", "sentence"), [*((each, WELL) for each in HEALTHY), *TROUBLES])
def test_each_trouble_has_its_level_and_one_sentence(taken: FleetSnapshot, sentence: str) -> None:
    verdict = judge(taken, None)

    assert (verdict.sentence, verdict.also) == (sentence, ())


@pytest.mark.parametrize(
    ("names", "level"), [(("worker-0",), "degraded"), (("worker-0", "worker-1"), "failing"), (("sinker-0",), "failing")]
)
def test_an_outage_that_only_those_know_who_wait_for_its_end_is_the_reason(names: tuple[str, ...], level: str) -> None:
    verdict = judge(waiting("storage", *names), None)

    assert (verdict.level.value, verdict.main.about) == (level, "storage")
    assert (
        verdict.main.reason
        == f"{len(names)} of 3 processes {'has' if len(names) == 1 else 'have'} waited for the storage {AT}: refused"
    )
    assert [each.about for each in verdict.also] == ["sinkers" if "sinker-0" in names else "workers"]


def test_what_goes_on_keeps_its_beginning_and_what_gets_worse_begins_then() -> None:
    one = changed("worker-1", "backoff")
    first = judge(one, None)
    well = judge(fleet(), first)

    again, worse, still_well = (replace(each, taken_at_unix=UNIX + 100) for each in (one, ALL_FATAL, fleet()))

    assert judge(again, first).main.since == first.main.since == UNIX - 2
    assert judge(worse, first).main.since == UNIX + 100
    assert judge(still_well, well).main.since == well.main.since


@pytest.mark.parametrize(
    ("latest", "now", "reason", "also"),
    [
        (lambda: None, 0.0, "the first collection is not finished yet", 0),
        (lambda: judged(fleet()), TAKEN_AT + 5.1, NO_DATA, 0),
        (lambda: judged(ALL_FATAL), TAKEN_AT + 5.1, NO_DATA, 1),
    ],
)
def test_old_data_is_unknown(latest: Callable[[], FleetSnapshot | None], now: float, reason: str, also: int) -> None:
    verdict = Verdicts(latest, 5.0, lambda: now).current()

    assert (verdict.level, verdict.main.about, verdict.main.reason) == (Level.UNKNOWN, "master", reason)
    assert len(verdict.also) == also
    assert not verdict.level.is_ready
    slow = judged(replace(fleet(), collect_seconds=3.0))
    assert Verdicts(lambda: slow, 5.0, lambda: TAKEN_AT + 11.0).current() is slow.verdict, "it takes long to collect"


def test_an_outage_is_an_event_when_it_begins_and_when_it_is_over() -> None:
    well, away = judged(fleet()), judged(of_brokers(6.0, 9.0, "refused"))
    is_full = judged(full(6.0))
    changes = Changes(0.0)

    pairs = ((well, away), (away, away), (away, is_full), (away, well))
    texts = [event.text for pair in pairs for event in changes.between(*pair)]

    assert texts == [
        "ok -> failing: no Kafka broker has answered since 2023-11-14T22:13:12Z: refused",
        f"still failing: the storage has been full {AT}: {FULL}",
        f"failing -> ok: {RUNS} (before: no Kafka broker has answered since 2023-11-14T22:13:12Z: refused)",
    ]


@pytest.mark.shows("an ordinary start, restart, reload or scale is `degraded` at most, never `failing`")
@pytest.mark.shows("a restart of the only sinker is reported as `degraded`, never `failing`")
@pytest.mark.parametrize(
    ("taken", "reason"),
    [
        (changing("sinker-0", "stopping"), "no sinker has worked since {}: sinker-0 is restarting on request"),
        (changing("sinker-0", "starting"), "no sinker has worked since {}: sinker-0 is restarting on request"),
        (changing("sinker-0", "running"), "no sinker has worked since {}: sinker-0 is joining the group"),
        (changing("engine", "starting"), "the engine has not run since {}: engine is restarting on request"),
    ],
)
def test_a_restart_on_request_is_degraded_and_named(taken: FleetSnapshot, reason: str) -> None:
    verdict = judge(taken, None)

    assert (verdict.level, verdict.main.reason, verdict.also) == (Level.DEGRADED, reason.format(AT[6:]), ())
    assert judge(changing("sinker-0", "running", since_seconds=61.0), None).level is Level.FAILING, "it takes too long"


@pytest.mark.parametrize(("is_requested", "level"), [(True, Level.DEGRADED), (False, Level.FAILING)])
def test_workers_that_wait_for_an_engine_are_as_well_as_it_is(is_requested: bool, level: Level) -> None:
    engine = status("engine", "starting", is_requested=is_requested)
    both = replace(waiting("engine", "worker-0", "worker-1"), supervised=(*fleet().supervised[:3], engine))

    verdict = judge(both, None)

    assert [(each.about, each.level) for each in (verdict.main, *verdict.also)] == [
        ("engine", level),
        ("workers", level),
    ]
    assert verdict.also[0].reason.endswith("worker-0 waits for the engine; worker-1 waits for the engine")


@pytest.mark.parametrize(
    ("taken", "works"),
    [
        (fleet(), ("engine", "workers", "sinkers")),
        (replace(fleet(), has_own_storage=True), ("engine", "workers")),
        (changed("sinker-0", "stopped", desired="stopped"), ("engine", "workers")),
        (changed("sinker-0", "backoff"), ("engine", "workers")),
        (changed("engine", "backoff"), ("workers", "sinkers")),
        (changed("worker-0", "backoff"), ("engine", "workers", "sinkers")),
        (ALL_FATAL, ("sinkers",)),
        (ALL_NEW, ("sinkers",)),
    ],
)
def test_a_host_of_several_names_what_it_does_for_the_others(taken: FleetSnapshot, works: tuple[str, ...]) -> None:
    assert judge(taken, None).works == ()

    verdict = judge(replace(taken, hosts=HostsAnswer("a", "a", 1)), None)

    assert (verdict.works, verdict.has_own_storage) == (works, taken.has_own_storage)
