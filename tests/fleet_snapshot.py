"""A snapshot of a fleet, its source, and ways to ask for it: in process, and over a real socket."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from types import MappingProxyType
from typing import Any, TypeVar

import httpx

from kctl.http.access import AccessRights, Token
from kctl.http.app import create_app
from kctl.http.server import HttpServer, bind
from kctl.http.source import SnapshotSource
from kctl.master.events import EventFeed
from kctl.master.history import FleetHistory
from kctl.master.reduction import STALE_SECONDS
from kctl.master.snapshot import FleetSnapshot, Reduced, RpcStats
from kctl.master.verdict import Verdicts, judge
from kctl.reduce.base import Freshness, GroupStats
from kctl.reduce.partitions import kafka_lag
from kctl.rows.advice import Advice, Answer
from kctl.rows.workers import AgentState, GroupMembers, MemberRow, WorkerRow, Workers, WorkerStatus
from kctl.rpc.fan_out import Failed
from kctl.status import Assessment, Status
from kctl.status.assessments import NOT_ASSESSED
from kctl_agent.replies.block_size import StorageReply, TableReply
from kctl_agent.replies.partitions import BrokerMetadata, BrokersReply, PartitionMetadata, TopicsReply
from kctl_agent.replies.workers import CommitStats, SinkerStats
from tests.partitions import Row, assessments_of, columns_of

T = TypeVar("T")

TAKEN_AT = 1000.0
NOW = 1002.0
UNIX = 1_700_000_000.0
TOKEN = "0123456789abcdef-token"
TOKENS = (Token(TOKEN, may_act=True),)
ODD = 'a "quoted" \\ group\nof two lines, ü'


def partition(number: int, lag: int | None = 6, worker: str | None = "worker-0") -> Row:
    end = None if lag is None else 10
    return Row("orders", number, 0, None if lag is None else 10 - lag, 4, end, None, worker, 1, 0.5)


ROWS = (partition(0), partition(1), partition(2, None, None))


def worker(name: str, state: str = "running", **more: Any) -> WorkerStatus:
    """Its kind is the first word of its name."""
    restarts, kind = MappingProxyType({"signal": 1}), name.split("-")[0]
    return replace(WorkerStatus(name, kind, "running", state, 1, 1.0, restarts, None, None, "log"), **more)


def snapshot(partitions: int = 3) -> FleetSnapshot:
    """The last partition is unknown, unowned and stalled; worker-1 did not answer."""
    rows = [partition(number) for number in range(partitions - 1)] + [partition(partitions - 1, None, None)]
    failed = (Failed("worker-1", "timeout", "no answer"),)
    ok, stalled = Assessment(Status.OK, "commits come", 2.5, -1.0, 6.0), Assessment(Status.STALLED, "it stands still")
    asked, answered = ("worker-0", "worker-1"), ("worker-0",)

    def reduced(result: T) -> Reduced[T]:
        return Reduced(result, asked, answered, failed, 0.5)

    of_partitions = columns_of(*(rows))
    unjudged = FleetSnapshot(
        cluster="main",
        group="g",
        taken_at=TAKEN_AT,
        collect_seconds=0.1,
        offset_checker=reduced(of_partitions),
        kafka_lag=kafka_lag(of_partitions),
        block_size=reduced(StorageReply(pending=7, processing=0, bytes=512, limit=0)),
        member_leader=reduced(GroupMembers("m-0", 3, True, (MemberRow("m-0", "worker-0", True, 3),))),
        kept={
            "metadata_brokers": reduced(
                BrokersReply(
                    tuple(BrokerMetadata(node, "127.0.0.1", 9092 + node, None, node == 1) for node in (1, 2, 10))
                )
            ),
            "metadata_topics": reduced(
                TopicsReply(
                    tuple(PartitionMetadata("orders", number, 1, (1,), (1,), ()) for number in range(partitions))
                )
            ),
        },
        workers=reduced(
            Workers(
                (
                    WorkerRow("sinker-0", "sinker", AgentState.IDLE, age_seconds=0.1),
                    WorkerRow("worker-0", "worker", AgentState.RUNNING, age_seconds=0.1),
                )
            )
        ),
        supervised=(worker("worker-0"), worker("worker-1", "backoff")),
        resident_bytes={},
        last_success={"committed": UNIX - 1, "offsets": UNIX - 1},
        assessments=assessments_of(*[ok] * (partitions - 1), stalled),
        group_assessment=Assessment(Status.STALLED, "1 of 3 partitions stalled", 2.5, -2.0, None),
        broker_group=GroupStats("stable", 2),
        brokers=Freshness(0.5, 0.5, 5.0, None),
        sequence=7,
        taken_at_unix=UNIX - 2,
    )
    return judged(unjudged)


def judged(snapshot: FleetSnapshot) -> FleetSnapshot:
    return replace(snapshot, verdict=judge(snapshot, None))


def healthy() -> FleetSnapshot:
    whole = snapshot()
    ok = whole.assessments[0]
    keep = Advice(Answer.KEEP, "the largest load is 0.50 with 1", 1, workers=1, needed=1, since=UNIX)
    every = assessments_of(*[ok] * 3)
    return judged(replace(whole, supervised=(worker("worker-0"),), assessments=every, group_assessment=ok, advice=keep))


def collected(*rows: Row) -> FleetSnapshot:
    whole = snapshot()
    offsets = replace(whole.offset_checker, result=columns_of(*rows))
    return replace(whole, offset_checker=offsets, assessments=NOT_ASSESSED)


def full_snapshot() -> FleetSnapshot:
    """A fleet with a table, counters, and names to escape."""
    rows = [partition(0), partition(1, None), partition(2)]
    rows += [each._replace(topic="100%", worker=None) for each in rows[:2]]
    workers = (
        WorkerRow(
            "worker-0", "worker", last_batch_seconds=0.5, rows_total=7, queries_failed=2, commits=CommitStats(2, 5)
        ),
        WorkerRow("sinker-0", "sinker", sinker=SinkerStats(handled=3, in_flight=0, handler_p99_seconds=1)),
    )
    table = TableReply(version=7, rows=1000, files=12, small_files=10, last_commit_seconds=2.5)
    return replace(
        collected(*rows),
        group=ODD,
        block_size=Reduced(StorageReply(bytes=4096, table=table)),
        workers=Reduced(Workers(workers), ("worker-0",), ("worker-0",), (), 0.1),
        assessments=assessments_of(*[Assessment(Status.WARN, "it grows", 2.5, 0.25, None)] * len(rows)),
        rpc={"ping": RpcStats({"ok": 2, "incomplete": 0, "failed": 1}, (1, 1, *[0] * 9, 1), 3.5)},
        operations_total={("pause", "done"): 2, ("pause", "refused"): 1},
        http_refused_total={"unauthorized": 3},
        memory_limit_bytes={"worker-0": 1_000_000_000},
    )


def history_of(*snapshots: FleetSnapshot) -> FleetHistory:
    history = FleetHistory()
    for each in snapshots:
        history.add(each)
    return history


async def _metrics(accept: str, _encoding: str) -> tuple[bytes, str, bool]:
    return f"metrics for {accept}\n".encode(), "text/plain", False


def source_of(latest: FleetSnapshot | None, /, **more: Any) -> SnapshotSource:
    """Without `more`, no fleet can be asked."""
    given: dict[str, Any] = {
        "latest": lambda: latest,
        "metrics": _metrics,
        "ask": None,
        "answer": None,
        "for_other_host": None,
        "settings": dict,
        "history": history_of(*([] if latest is None else [latest])),
        "feed": EventFeed(),
        "clock": lambda: NOW,
    }
    given |= more
    verdicts = Verdicts(given["latest"], STALE_SECONDS, given["clock"], started_at=UNIX)
    return SnapshotSource(**{"verdicts": verdicts, **given})


async def ask(
    latest: FleetSnapshot | SnapshotSource | None,
    path: str,
    method: str = "GET",
    access: AccessRights | None = None,
    **options: Any,
) -> httpx.Response:
    async with client_of(latest, access) as client:
        return await client.request(method, path, **options)


def client_of(
    latest: FleetSnapshot | SnapshotSource | None, access: AccessRights | None = None, path: str = ""
) -> httpx.AsyncClient:
    """Asks one application in this process, because making an application takes longer than most answers."""
    source = latest if isinstance(latest, SnapshotSource) else source_of(latest)
    transport = httpx.ASGITransport(create_app(source, access).guarded, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url=f"http://localhost{path}")


@asynccontextmanager
async def serving(
    source: SnapshotSource, access: AccessRights | None = None, host: str = "127.0.0.1"
) -> AsyncIterator[HttpServer]:
    server = HttpServer(create_app(source, access), bind(host, 0), access)
    task = asyncio.create_task(server.serve())
    try:
        yield server
    finally:
        server.stop()
        async with asyncio.timeout(10):
            await task
