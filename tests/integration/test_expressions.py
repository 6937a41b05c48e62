"""Every expression of dashboards and rules, asked of a real Prometheus that scrapes three fleets.

Two fleets, on two clusters, make every alert fire. The third is healthy and makes none fire.
"""

import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from kctl.exporter import Exposition
from kctl.master.restart import Cause
from kctl.master.snapshot import RPC_BUCKETS_SECONDS, FleetSnapshot, Reduced, RpcStats
from kctl.reduce.base import GroupStats
from kctl.reduce.partitions import kafka_lag
from kctl.rows.advice import Advice, Answer
from kctl.rows.verdict import Finding, Level, Verdict
from kctl.rows.workers import GroupMembers, Pings, WorkerRow, Workers, WorkerStatus
from kctl.status import Assessment, Status
from kctl_agent.replies.block_size import StorageReply, TableReply
from kctl_agent.replies.workers import CommitStats, SinkerStats
from tests.conftest import eventually
from tests.expressions import RULES_FILE, alerts, of_dashboards
from tests.partitions import Row, assessments_of, columns_of
from tests.prometheus import Page, Prometheus, require, serving

SICK = {"one", "two"}
WELL = "three"
SCRAPES = 6


def snapshot(cluster: str, tick: int) -> FleetSnapshot:
    """A fleet after `tick` scrapes. It exports every metric, and every counter grows."""
    is_sick = cluster in SICK
    status = (Status.STALLED, Status.STOPPED, Status.LOSING) if is_sick else (Status.OK,) * 3
    assessments = tuple(
        Assessment(one, "", 900.0 if is_sick else 0.5, 50.0 if is_sick else -1.0, 60.0, 900.0 if is_sick else 0.5)
        for one in status
    )
    start, committed = (100 * tick, 100 * tick + 10) if is_sick else (0, 100 * tick)
    rows = tuple(
        Row("orders", number, start, committed, committed + 5, committed + (90_000 if is_sick else 10), None,
                     "worker-0", tick, 0.1)
        for number in range(len(status))
    )  # fmt: skip
    causes = {cause.value: 2 * tick if is_sick and cause is Cause.SIGNAL else 0 for cause in Cause}
    sinker = SinkerStats(
        handled=90 * tick,
        retried=20 * tick if is_sick else 0,
        dead=tick if is_sick else 0,
        lost=0,
        in_flight=3,
        handler_errors=tick if is_sick else 0,
        handler_p50_seconds=0.01,
        handler_p99_seconds=0.2,
    )
    worker = WorkerRow(
        "worker-0",
        "worker",
        last_batch_seconds=0.5,
        batch_running_seconds=0.1,
        rows_total=100 * tick,
        batches_total=tick,
        commits=CommitStats(failed=tick if is_sick else 0, retried=0),
    )
    lost = {"records_lost": tick, "storage_rolled_back": tick} if is_sick else {}
    full = "900 messages wait, and storage.limit is 900" if is_sick else None
    small_files, last_commit = (20_000, 7200.0) if is_sick else (5, 1.0)
    stored = StorageReply(
        pending=900 if is_sick else 5,
        processing=0,
        dead=7 if is_sick else 0,
        bytes=10_000,
        limit=1000,
        full=full,
        table=TableReply(tick, 1000 * tick, 30_000, small_files, last_commit),
    )
    asked = ("worker-0", "sinker-0")
    answered = asked[1:] if is_sick else asked
    counts = (tick, *[0] * len(RPC_BUCKETS_SECONDS))
    return FleetSnapshot(
        cluster=cluster,
        group="billing",
        taken_at=float(tick),
        collect_seconds=0.25,
        offset_checker=Reduced(columns_of(*rows), asked, answered, (), 0.1),
        kafka_lag=kafka_lag(columns_of(*rows)),
        block_size=Reduced(stored, asked, answered, (), 0.1),
        member_leader=Reduced(GroupMembers(generation=tick if is_sick else 3), asked, answered, (), 0.1),
        ping=Reduced(Pings(), asked, answered, (), 0.1),
        workers=Reduced(Workers((worker, WorkerRow("sinker-0", "sinker", sinker=sinker))), asked, answered, (), 0.1),
        supervised=(
            WorkerStatus("worker-0", "worker", "running", "fatal" if is_sick else "running", 1, 1.0, causes, None,
                         None, "log"),
        ),
        resident_bytes={"worker-0": 950 if is_sick else 300},
        last_success={
            part: time.time() - (300 if is_sick else 1) for part in ("agents", "committed", "offsets")
        },
        assessments=assessments_of(*assessments),
        group_assessment=assessments[1],
        advice=Advice(Answer.KEEP, "the number fits", 1, workers=1),
        broker_group=GroupStats("empty", 0) if is_sick else GroupStats("stable", 1),
        rpc={"ping": RpcStats({"ok": tick, "incomplete": 0, "failed": 0}, counts, 0.001 * tick)},
        events_total={"rebalance": tick, **lost},
        memory_limit_bytes={"worker-0": 1000},
        verdict=Verdict.of(
            Finding(Level.FAILING if is_sick else Level.OK, "brokers", "no broker answers", 0.0),
            (Finding(Level.DEGRADED, "unhandled", "messages have waited too long", 0.0),) if is_sick else (),
        ),
    )  # fmt: skip


class _Fleet:
    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        self._tick = 0

    def page(self) -> Page:
        self._tick += 1
        latest = snapshot(self._cluster, self._tick)
        body, content_type, _ = Exposition(lambda: latest).render()
        return content_type, body


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    with ExitStack() as stack:
        targets = [stack.enter_context(serving(_Fleet(cluster).page)) for cluster in (*sorted(SICK), WELL)]
        folder: Path = tmp_path_factory.mktemp("prometheus")
        server = Prometheus(folder, [*targets, "127.0.0.1:1"], rules=RULES_FILE.read_text())
        stack.callback(server.close)

        def is_scraped() -> bool:
            counts = server.query("count_over_time(kctl_build_info[1m])")
            recorded = server.query("count_over_time(cluster_group:kctl_group_max_lag_seconds:over_objective[1m])")
            enough = [series for series in (*counts, *recorded) if float(series["value"][1]) >= SCRAPES]
            return len(enough) == 2 * len(targets)

        eventually(is_scraped, what="three fleets are scraped")
        yield server


def clusters(series: list[dict[str, Any]]) -> set[str]:
    return {one["metric"]["cluster"] for one in series}


@pytest.mark.shows("every expression of panels and rules returns data; alerts fire for sick fleets only")
@pytest.mark.parametrize("name", of_dashboards("10s"))
def test_every_expression_of_a_dashboard_returns_data_of_every_cluster_apart(prometheus: Prometheus, name: str) -> None:
    happens_to_sick_only = name.endswith(("annotation Restarts", "annotation Rebalances"))

    series = prometheus.query(of_dashboards("10s")[name])

    assert clusters(series) == (SICK if happens_to_sick_only else {*SICK, WELL})


NOT_OF_THESE = ("KctlMasterDown", "KctlClusterNotCollected", "KctlFleetDegraded", "KctlHostMissing")
"""No fleet here has the first two (test_exporter_in_prometheus.py has the second) or several hosts. A failing fleet is
not also degraded. deploy/prometheus/tests has them."""


@pytest.mark.parametrize("alert", [name for name in alerts() if name not in NOT_OF_THESE])
def test_every_alert_is_true_of_what_is_sick_and_not_of_what_is_well(prometheus: Prometheus, alert: str) -> None:
    series = prometheus.query(alerts()[alert])

    assert clusters(series) == SICK


def test_a_master_that_cannot_be_scraped_fires_and_no_other(prometheus: Prometheus) -> None:
    series = prometheus.query(alerts()["KctlMasterDown"])

    assert [one["metric"]["instance"] for one in series] == ["127.0.0.1:1"]


def test_promtool_finds_nothing_wrong_with_the_metrics() -> None:
    [promtool] = require("promtool")
    _, body = _Fleet("one").page()

    done = subprocess.run([promtool, "check", "metrics"], input=body, capture_output=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout + done.stderr == b""
