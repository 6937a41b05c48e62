"""Judges a fleet by pure rules over its snapshot (docs/status.md).

kctl judges each snapshot once, and all interfaces show the same verdict. Stale data never counts as healthy.
"""

import time
from collections import Counter
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, field

import msgspec

from kctl.fields import moment, shortened
from kctl.master.reduction import STALE_SECONDS
from kctl.master.snapshot import FleetSnapshot
from kctl.rows.verdict import UNOWNED, Finding, Level, Verdict
from kctl.rows.workers import AgentState, WorkerRow, WorkerStatus
from kctl.status import Status, handling
from kctl.status.handling import Found
from kctl_agent.replies.workers import WaitingFor
from kctl_agent.rpc.messages import number_of

_TURNING = frozenset({AgentState.RUNNING, AgentState.IDLE, AgentState.PAUSED, AgentState.THROTTLED})
"""In these states each turn of the main loop is short. In others it may take long, because queries start and stop."""
_BEGINNING: dict[str | None, str] = {
    AgentState.STARTING: "is starting",
    AgentState.JOINING: "is joining the group",
    AgentState.REBALANCING: "is getting its first partitions",
    AgentState.ASSIGNED: "is starting its query",
}
"""States of a worker that reads nothing yet; a later rebalance shows in its partitions."""
_OF_STATUS = {
    Status.STARTING: Level.DEGRADED,
    Status.REBALANCING: Level.DEGRADED,
    Status.WARN: Level.DEGRADED,
    Status.REWIND: Level.DEGRADED,
    Status.UNKNOWN: Level.UNKNOWN,
    Status.STALLED: Level.FAILING,
    Status.STOPPED: Level.FAILING,
    Status.LOSING: Level.FAILING,
}
_DOES = {"engine": "worker", "workers": "worker", "sinkers": "sinker"}
"""Parts of a fleet's work, each with the kind of process whose work shows that a host does it."""
_GRACE_SECONDS = 60.0  # time for a process to begin its work after a requested start or restart


@dataclass(frozen=True, slots=True)
class Verdicts:
    latest: Callable[[], FleetSnapshot | None]
    max_age_seconds: float
    clock: Callable[[], float] = time.monotonic
    started_at: float = field(default_factory=time.time)

    def current(self) -> Verdict:
        snapshot = self.latest()
        if snapshot is None:
            what = "the first collection is not finished yet"
            return Verdict(Level.UNKNOWN, "master", what, self.started_at)
        if self.clock() - snapshot.taken_at > max(self.max_age_seconds, 4 * snapshot.collect_seconds):
            since = snapshot.taken_at_unix
            reason = f"no data since {moment(since)}: the master no longer collects"
            main = snapshot.verdict.main
            also = (() if main.level is Level.OK else (main,)) + snapshot.verdict.also
            return Verdict(Level.UNKNOWN, "master", reason, since, also)
        return snapshot.verdict


def judge(snapshot: FleetSnapshot, before: Verdict | None) -> Verdict:
    """Returns the verdict on a snapshot. Findings from the previous verdict, `before`, keep their start times."""
    began = {} if before is None else {(each.about, each.level): each.since for each in (before.main, *before.also)}
    group, storage = snapshot.group_assessment, snapshot.block_size.result
    outside = [*_brokers(snapshot), *_storage(snapshot), *_engine(snapshot)]
    findings = [
        *outside,
        *_waiting(snapshot, {each.about for each in outside}),
        *_processes(snapshot, "worker"),
        *_processes(snapshot, "sinker"),
        *_handling(snapshot),
        *_partitions(snapshot),
        *_attached(snapshot),
        *_beside(snapshot),
        *_replicas(snapshot),
        *_hosts(snapshot),
    ]
    if not findings:
        since = began.get(("fleet", Level.OK), snapshot.taken_at_unix)
        words = "everything is running", group.reason, *handling.progress_words(snapshot.unhandled, storage)
        main, also = Finding(Level.OK, "fleet", "; ".join(words), since), []
    else:
        findings.sort(key=lambda each: -each.level.severity)
        main, *also = (
            _finding(each, began.get((each.about, each.level), snapshot.taken_at_unix - each.seconds))
            for each in findings
        )
    works = tuple(_works(snapshot, {each.about for each in findings if each.level is not Level.DEGRADED}))
    verdict = Verdict.of(main, tuple(also), group.oldest_unhandled_seconds)
    return msgspec.structs.replace(verdict, works=works, has_own_storage=snapshot.has_own_storage)


def _works(snapshot: FleetSnapshot, in_trouble: Container[str]) -> Iterator[str]:
    for about, kind in _DOES.items() if snapshot.hosts is not None else ():
        # If each host has its own storage, its sinkers do not work for the other hosts.
        is_for_all = about not in in_trouble and not (kind == "sinker" and snapshot.has_own_storage)
        if is_for_all and any(_trouble(snapshot, *each) is None for each in _supervised(snapshot, kind)):
            yield about


def _finding(found: Found, since: float) -> Finding:
    why = f": {found.why}" if found.why else ""
    return Finding(found.level, found.about, f"{found.what} since {moment(since)}{why}", since)


def _share(count: int, of: int, noun: str, plural: str = "") -> str:
    return f"{count} of {number_of(of, noun, plural)} {'has' if count == 1 else 'have'}"


def _brokers(snapshot: FleetSnapshot) -> Iterator[Found]:
    brokers = snapshot.brokers
    if brokers is None:
        return
    limit, age, complete = brokers.stale_after_seconds, brokers.age_seconds, brokers.complete_age_seconds
    if age is None:
        level = Level.UNKNOWN if brokers.error is None else Level.FAILING
        yield Found(level, "brokers", "no Kafka broker has answered", brokers.error)
    elif age > limit:
        # If workers get answers and the master does not, their offsets are current.
        ages = snapshot.offset_checker.result.age_seconds[: len(snapshot.partitions)]
        is_blind = bool((ages > limit).any()) or not len(ages)
        level = Level.FAILING if is_blind else Level.DEGRADED
        yield Found(
            level, "brokers", f"no Kafka broker has answered{'' if is_blind else ' the master'}", brokers.error, age
        )
    elif complete is None or complete > limit:
        what = "the Kafka brokers have not answered all requests"
        yield Found(Level.DEGRADED, "brokers", what, brokers.error, complete or 0.0)
    elif brokers.are_just_back:
        yield Found(Level.DEGRADED, "brokers", "the Kafka brokers are back, and replicas have been unknown")
    for name in brokers.missing_topics:
        remedy = f"create it again (`kctl kafka create-topic {name}`), or take it out of kafka.topics and "
        remedy += "start the fleet again"
        yield Found(Level.FAILING, f"topic {name}", f"topic {name} has not existed", remedy)


def _storage(snapshot: FleetSnapshot) -> Iterator[Found]:
    storage = snapshot.block_size.result
    age = storage.age_seconds or 0.0
    if storage.error or age > STALE_SECONDS:
        yield Found(Level.FAILING, "storage", "the storage has not answered", storage.error, age)
    elif storage.full:
        # Back-pressure for a moment is how workers and sinkers share a storage.
        level = Level.FAILING if snapshot.lasting("storage", "full") > STALE_SECONDS else Level.DEGRADED
        yield Found(level, "storage", "the storage has been full", f"{storage.full}{_no_sinker(snapshot)}")


def _no_sinker(snapshot: FleetSnapshot) -> str:
    storage = snapshot.block_size.result
    if storage.table is not None or not storage.pending or _supervised(snapshot, "sinker"):
        return ""
    if (stopped := next((each.name for each in snapshot.supervised if each.kind == "sinker"), None)) is not None:
        return f"; all sinkers are stopped: `kctl start {stopped}`"
    return "; no sinker takes messages out: set sinkers.handler, then `kctl reload` and `kctl scale sinkers=2`"


def _engine(snapshot: FleetSnapshot) -> Iterator[Found]:
    for status, row in _supervised(snapshot, "engine"):
        if (why := _trouble(snapshot, status, row)) is not None:
            level, remedy = Level.FAILING, "; it restarts automatically; `kctl logs engine` shows why it ended"
            if _is_first_start(status, row) or _is_changing(snapshot, status, row):
                level, remedy = Level.UNKNOWN if _is_first_start(status, row) else Level.DEGRADED, ""
            elif status.state == "fatal":
                remedy = _after_fatal("engine")
            yield Found(level, "engine", "the engine has not run", why + remedy)


def _waiting(snapshot: FleetSnapshot, known: Container[str]) -> Iterator[Found]:
    processes = [*_supervised(snapshot, "worker"), *_supervised(snapshot, "sinker")]
    waiting: dict[str, list[tuple[str, str | None]]] = {}
    for status, row in processes:
        if (each := _waits_for(snapshot, row)) is not None and not _is_changing(snapshot, status, row):
            waiting.setdefault(each.what, []).append((status.kind, each.reason))
    in_all = Counter(status.kind for status, _ in processes)
    for what, waiters in waiting.items():
        if what not in known:
            counts = Counter(kind for kind, _ in waiters)
            level = Level.FAILING if any(counts[kind] == in_all[kind] for kind in counts) else Level.DEGRADED
            share = _share(len(waiters), len(processes), "process", "processes")
            yield Found(level, what, f"{share} waited for the {what}", waiters[0][1])


def _waits_for(snapshot: FleetSnapshot, row: WorkerRow | None) -> WaitingFor | None:
    waiting = None if row is None else row.waiting_for
    # A short wait is normal, for instance while a coordinator moves to another broker.
    if row is None or waiting is None or snapshot.lasting(row.name, waiting.what) <= STALE_SECONDS:
        return None
    return waiting


def _processes(snapshot: FleetSnapshot, kind: str) -> Iterator[Found]:
    wanted = _supervised(snapshot, kind)
    troubled = [(each, why) for each in wanted if (why := _trouble(snapshot, *each)) is not None]
    if not troubled:
        return
    level, what = Level.DEGRADED, f"{_share(len(troubled), len(wanted), kind)} not worked"
    ended = next((each for (each, _), _ in troubled if each.state in ("backoff", "fatal")), None)
    if len(troubled) == len(wanted):
        level, what = Level.FAILING, f"no {kind} has worked"
        if all(_is_first_start(*each) for each, _ in troubled):
            level = Level.UNKNOWN
        elif all(_is_changing(snapshot, *each) for each, _ in troubled):
            level = Level.DEGRADED
    remedy = "" if ended is None else _after_fatal(ended.name) if ended.state == "fatal" else _more_in_logs(ended.name)
    yield Found(level, f"{kind}s", what, shortened([why for _, why in troubled], between="; ") + remedy)


def _handling(snapshot: FleetSnapshot) -> Iterator[Found]:
    storage = snapshot.block_size.result
    rows = (row for _, row in _supervised(snapshot, "sinker"))
    sinkers = {row.name: row.sinker for row in rows if row is not None and row.sinker is not None}
    yield from handling.calls(sinkers)
    yield from handling.tries(sinkers, storage)
    yield from handling.dead_letters(storage)
    yield from handling.late(snapshot.unhandled, storage)


def _supervised(snapshot: FleetSnapshot, kind: str) -> list[tuple[WorkerStatus, WorkerRow | None]]:
    rows = {row.name: row for row in snapshot.workers.result.rows}
    return [
        (status, rows.get(status.name))
        for status in snapshot.supervised
        if status.kind == kind and (status.desired == "running" or status.state == "unkillable")
    ]


def _is_first_start(status: WorkerStatus, row: WorkerRow | None) -> bool:
    return status.restarts == 0 and (status.state == "starting" or _beginning(status, row) is not None)


def _is_changing(snapshot: FleetSnapshot, status: WorkerStatus, row: WorkerRow | None) -> bool:
    if status.is_requested and status.state != "running":
        return True
    if status.is_requested and status.since_seconds <= _GRACE_SECONDS and _beginning(status, row) is not None:
        return True
    if row is None or row.waiting_for is None or row.waiting_for.what != "engine":
        return False
    engines = _supervised(snapshot, "engine")
    return any(each.is_requested and each.since_seconds <= _GRACE_SECONDS for each, _ in engines)


def _beginning(status: WorkerStatus, row: WorkerRow | None) -> str | None:
    if row is None or row.state is None:
        return "is starting" if status.since_seconds <= STALE_SECONDS else None
    if row.batches_total and row.state in (AgentState.REBALANCING, AgentState.ASSIGNED):
        return None
    return _BEGINNING.get(row.state)


def _trouble(snapshot: FleetSnapshot, status: WorkerStatus, row: WorkerRow | None) -> str | None:
    name = status.name
    if status.state != "running":
        if status.is_requested and (status.restarts or status.state == "stopping"):
            return f"{name} is restarting on request"
        return f"{name} is {status.state_words}" + (f" ({status.last_error})" if status.last_error else "")
    if snapshot.lasting(name, "silent") > STALE_SECONDS:
        return f"{name} does not answer"
    if (waiting := _waits_for(snapshot, row)) is not None:
        return f"{name} waits for the {waiting.what}"
    if (what := _beginning(status, row)) is not None:
        return f"{name} {what}"
    if row is None or row.state == AgentState.THROTTLED:  # a full storage is a finding of its own
        return None
    if (row.age_seconds or 0.0) > STALE_SECONDS:
        return f"{name} has published nothing for {row.age_seconds:.0f} s"
    turns = (each.main_thread_age_seconds or 0.0 for each in snapshot.ping.result.rows if each.name == name)
    if row.state in _TURNING and next(turns, 0.0) > STALE_SECONDS:
        return f"the main thread of {name} hangs"
    # a sinker's error is about a message
    if row.state == AgentState.FAILED or (row.last_error and row.kind != "sinker"):
        return f"{name}: {row.last_error or 'it has failed'}"
    return None


def _attached(snapshot: FleetSnapshot) -> Iterator[Found]:
    supervised = {status.name for status in snapshot.supervised}
    names = [each.sender for each in snapshot.ping.failed if each.sender not in supervised]
    silent = [name for name in names if snapshot.lasting(name, "silent") > STALE_SECONDS]
    if silent:
        yield Found(
            Level.DEGRADED,
            "attached",
            f"{number_of(len(silent), 'attached agent')} silent",
            shortened(silent, between="; "),
        )


def _beside(snapshot: FleetSnapshot) -> Iterator[Found]:
    # Failing attached applications only degrade the fleet, because they are not part of its work.
    for group in snapshot.attached:
        if _OF_STATUS.get(group.assessment.status) is Level.FAILING:
            what, _, why = group.assessment.reason.partition(": ")
            yield Found(Level.DEGRADED, group.group, f"{group.group}: {what}", why)


def _partitions(snapshot: FleetSnapshot) -> Iterator[Found]:
    unowned, own = snapshot.unowned, snapshot.group_assessment
    for about, group in (("partitions", None if own == unowned else own), (UNOWNED, unowned)):
        if group is not None and group.status in _OF_STATUS:
            what, _, why = group.reason.partition(": ")
            workers = snapshot.offset_checker.result.listed("worker", None)
            both = zip(workers, snapshot.own_assessments.statuses(), strict=False)
            stalled = (worker for worker, status in both if status is Status.STALLED is group.status and worker)
            yield Found(_OF_STATUS[group.status], about, what, why + _more_in_logs(next(stalled, None)))


def _after_fatal(name: str) -> str:
    return f"; correct what `kctl logs {name}` shows, then `kctl start {name}`"


def _more_in_logs(name: str | None) -> str:
    return f"; `kctl logs {name}` shows more" if name else ""


def _replicas(snapshot: FleetSnapshot) -> Iterator[Found]:
    topics = snapshot.kept.get("metadata_topics")
    rows = topics.result.rows if topics else ()
    lacking = [
        set(row.replica_nodes).difference(row.isr_nodes)
        for row in rows
        if row.replica_nodes and row.isr_nodes and len(row.isr_nodes) < len(row.replica_nodes)
    ]
    if lacking:
        nodes = ", ".join(map(str, sorted(set().union(*lacking))))
        what = f"{_share(len(lacking), len(rows), 'partition')} lacked in-sync replicas"
        yield Found(Level.DEGRADED, "replicas", what, f"those of broker {nodes}")


def _hosts(snapshot: FleetSnapshot) -> Iterator[Found]:
    if snapshot.hosts is None:
        return
    if (missing := [row.name for row in snapshot.hosts.rows if row.is_missing]) != []:
        share = _share(len(missing), len(snapshot.hosts.rows), "host")
        yield Found(Level.DEGRADED, "hosts", f"{share} been missing", shortened(missing, between="; "))
    elif snapshot.hosts.error is not None:
        yield Found(Level.DEGRADED, "hosts", "the hosts of the fleet have been unknown", snapshot.hosts.error)
