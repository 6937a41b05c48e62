from __future__ import annotations

import gzip
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric as Family
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families

from kctl.exporter import Exposition
from kctl.master.restart import Cause, SupervisionState
from kctl.master.snapshot import FleetSnapshot, Reduced, RpcStats
from kctl.reduce.base import GroupStats
from kctl.rows.partitions import LagTotals, ResetPolicy
from kctl.rows.workers import GroupMembers, Pings, WorkerRow, Workers, WorkerStatus
from kctl.rpc.fan_out import Failed
from kctl.status import Assessment, Status
from kctl_agent.replies.block_size import StorageReply, TableReply
from kctl_agent.replies.workers import CommitStats, SinkerStats
from tests.metrics_page import reference
from tests.partitions import Row, assessments_of, columns_of
from tests.snapshot_collector import SnapshotCollector

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def row(partition: int, committed: int | None, position: int | None, end: int | None) -> Row:
    """The group starts at the end: without an offset of its own, its lag is unknown."""
    return Row("orders", partition, 0, committed, position, end, None, "worker-0", 1, 0.1, ResetPolicy.LATEST)


def worker(name: str, state: SupervisionState) -> WorkerStatus:
    restarts = MappingProxyType({cause.value: 2 if cause is Cause.SIGNAL else 0 for cause in Cause})
    return WorkerStatus(name, "worker", "running", state.value, 1, 1.0, restarts, None, None, "log")


def snapshot(rows: Iterable[Row] = (), total: int | None = None, pending: int | None = None) -> FleetSnapshot:
    failed = (Failed("worker-1", "timeout", "no answer"),)
    asked, answered = ("worker-0", "worker-1"), ("worker-0",)
    return FleetSnapshot(
        cluster="main",
        group='a "quoted" \\ group',
        taken_at=1000.0,
        collect_seconds=0.25,
        offset_checker=Reduced(columns_of(*(rows)), asked, answered, failed, 0.1),
        kafka_lag=LagTotals(total),
        block_size=Reduced(StorageReply(pending=pending, processing=0), asked, answered, failed, 0.1),
        ping=Reduced(Pings(), asked, answered, failed, 0.1),
        supervised=(worker("worker-0", SupervisionState.RUNNING),),
        resident_bytes={"worker-0": 5_000_000},
        last_success={"agents": 1_700_000_000.5},
    )


def scraped(latest: FleetSnapshot | None, accept: str = "") -> Samples:
    body, _, _ = Exposition(lambda: latest).render(accept)
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
    }


def values(samples: Samples, name: str, *labels: str) -> dict[tuple[str, ...], float]:
    return {
        tuple(dict(of)[label] for label in labels): value
        for (its_name, of), value in samples.items()
        if its_name == name
    }


def test_before_the_first_collection_there_is_not_one_sample() -> None:
    assert scraped(None) == {}


def test_each_partition_has_its_samples_and_an_unknown_one_is_absent() -> None:
    samples = scraped(snapshot([row(0, 4, 5, 10), row(1, None, None, 20), row(2, None, 3, None)], total=6))

    assert values(samples, "kctl_consumer_lag", "topic", "partition") == {("orders", "0"): 6}
    assert values(samples, "kctl_consumer_committed_offset", "partition") == {("0",): 4}
    assert values(samples, "kctl_consumer_position_offset", "partition") == {("0",): 5, ("2",): 3}
    assert values(samples, "kctl_partition_end_offset", "partition") == {("0",): 10, ("1",): 20}
    assert values(samples, "kctl_partition_start_offset", "partition") == {("0",): 0, ("1",): 0, ("2",): 0}
    assert values(samples, "kctl_group_lag", "cluster", "group") == {("main", 'a "quoted" \\ group'): 6}


def test_a_total_that_is_not_known_is_absent_and_never_zero() -> None:
    assert values(scraped(snapshot(total=None)), "kctl_group_lag", "group") == {}
    assert list(values(scraped(snapshot(total=0)), "kctl_group_lag", "group").values()) == [0]


def test_messages_behind_open_transactions_are_counted_beside_the_lag() -> None:
    latest = replace(snapshot(total=0), kafka_lag=LagTotals(0, behind_transaction=12))

    assert list(values(scraped(latest), "kctl_group_behind_transaction", "group").values()) == [12]
    assert values(scraped(snapshot(total=0)), "kctl_group_behind_transaction", "group") == {}


def test_a_partition_that_is_gone_is_gone_with_the_next_snapshot() -> None:
    latest = snapshot([row(0, 4, 5, 10), row(1, 4, 5, 10)])
    exposition = Exposition(lambda: latest)
    assert b'partition="1"' in exposition.render("")[0]

    latest = replace(latest, offset_checker=replace(latest.offset_checker, result=columns_of(row(0, 4, 5, 10))))

    assert b'partition="1"' not in exposition.render("")[0]


def test_snapshots_one_after_the_other_are_rendered_as_each_by_itself() -> None:
    rows = [[row(0, 4, 5, 10), row(1, committed, 5, 10)] for committed in (4, 4, 4, None, None, None, 6, 4)]
    latest = snapshot(rows[0])
    exposition = Exposition(lambda: latest)

    for some in (*rows, rows[0][:1], rows[0]):
        latest = snapshot(some)
        assert exposition.render("") == Exposition(lambda: latest).render("")  # noqa: B023 - called at once


def test_a_storage_state_that_is_not_known_is_absent() -> None:
    assert values(scraped(snapshot(pending=7)), "kctl_storage_messages", "state") == {
        ("pending",): 7,
        ("processing",): 0,
    }


def test_a_table_exports_what_it_holds_and_the_commits_of_each_worker() -> None:
    latest = full_snapshot()
    table = TableReply(version=7, rows=1000, files=12, small_files=10, last_commit_seconds=2.5)
    workers = Workers((WorkerRow("worker-0", "worker", commits=CommitStats(failed=2, retried=5)),))
    of_table = replace(
        latest,
        block_size=replace(latest.block_size, result=StorageReply(bytes=4096, table=table)),
        workers=replace(latest.workers, result=workers),
    )

    samples = scraped(of_table)

    assert {name.removeprefix("kctl_table_"): value for (name, _), value in samples.items() if "_table_" in name} == {
        "version": 7,
        "rows": 1000,
        "files": 12,
        "small_files": 10,
        "last_commit_age_seconds": 2.5,
        "commit_failures_total": 2,
        "commit_retries_total": 5,
    }
    assert values(samples, "kctl_storage_full") == {(): 0}
    assert not [name for name, _ in scraped(latest) if "_table_" in name], "unknown is absent"


def test_openmetrics_is_for_clients_that_ask_for_it() -> None:
    body, content_type, _ = Exposition(snapshot).render("application/openmetrics-text;version=1.0.0")

    assert content_type.startswith("application/openmetrics-text")
    assert body.endswith(b"# EOF\n")


def test_gzip_is_for_clients_that_accept_it() -> None:
    exposition = Exposition(snapshot)
    plain, _, is_plain = exposition.render("", "identity, gzip;q=0")

    body, _, is_gzipped = exposition.render("", "deflate, gzip")

    assert (is_plain, is_gzipped) == (False, True)
    assert gzip.decompress(body) == plain


def full_snapshot() -> FleetSnapshot:
    rows = [row(partition, None if partition == 1 else 4, 5, 10) for partition in range(3)]
    rows += [one._replace(topic="100%", worker=None) for one in rows[:2]]
    assessment = Assessment(Status.WARN, "it grows", 2.5, 0.25, None)
    workers = (
        WorkerRow(
            "worker-0",
            "worker",
            last_batch_seconds=0.5,
            rows_total=7,
            batches_total=1,
            batch_seconds_total=0.5,
            queries_failed=2,
        ),
        WorkerRow("sinker-0", "sinker", sinker=SinkerStats(handled=3, in_flight=0, handler_p99_seconds=1)),
    )
    base = snapshot(rows, total=6, pending=7)
    return replace(
        base,
        workers=Reduced(Workers(workers), ("worker-0",), ("worker-0",), (), 0.1),
        member_leader=Reduced(GroupMembers(generation=4), ("worker-0",), ("worker-0",), (), 0.1),
        assessments=assessments_of(*[assessment] * len(rows)),
        group_assessment=assessment,
        broker_group=GroupStats("stable", 2),
        rpc={"ping": RpcStats({"ok": 2, "incomplete": 0, "failed": 1}, (1, 1, *[0] * 9, 1), 3.5)},
        operations_total={("pause", "done"): 2, ("pause", "refused"): 1},
        http_refused_total={"unauthorized": 3},
        events_total={"rebalance": 2},
        memory_limit_bytes={"worker-0": 1_000_000_000},
    )


def test_operations_are_counted_by_kind_and_outcome_and_queries_that_failed_by_worker() -> None:
    samples = scraped(full_snapshot())

    assert values(samples, "kctl_operations_total", "operation", "outcome") == {
        ("pause", "done"): 2,
        ("pause", "refused"): 1,
    }
    assert values(samples, "kctl_worker_query_failures_total", "worker") == {("worker-0",): 2}


def test_rejected_http_requests_are_counted_by_code() -> None:
    assert values(scraped(full_snapshot()), "kctl_http_refused_total", "code") == {("unauthorized",): 3}


def reported(family: Family) -> Samples:
    return {(sample.name, tuple(sorted(sample.labels.items()))): sample.value for sample in family.samples}


@pytest.mark.shows("`/metrics` omits unknown values and ended series; OpenMetrics, gzip")
@pytest.mark.parametrize("accept", ["", "application/openmetrics-text"])
def test_the_page_is_what_prometheus_client_would_render(accept: str) -> None:
    latest = full_snapshot()
    registry = CollectorRegistry()
    registry.register(SnapshotCollector(lambda: latest))
    encode, parse = (
        (generate_openmetrics, parse_openmetrics) if accept else (generate_latest, text_string_to_metric_families)
    )

    ours = Exposition(lambda: latest).render(accept)[0].decode()

    found = {family.name: family for family in parse(ours)}
    expected = {family.name: family for family in parse(encode(registry).decode())}
    assert found.keys() == expected.keys()
    for name, family in expected.items():
        assert (found[name].type, found[name].documentation) == (family.type, family.documentation)
        assert reported(found[name]) == reported(family), name


def test_a_page_that_is_asked_for_is_ready_when_its_snapshot_becomes_the_last_one() -> None:
    latest, following = snapshot(total=1), snapshot(total=2)
    exposition = Exposition(lambda: latest)
    assert exposition.ready("", "gzip") is None, "nobody has asked yet"
    before = exposition.render("", "gzip")

    exposition.prepare(following)

    assert exposition.ready("", "gzip") == before, "the last snapshot is still the one before"
    assert exposition.ready("", "") is None, "nobody has asked for it without gzip"
    latest = following
    assert exposition.ready("", "gzip") == exposition.render("", "gzip") != before
    assert exposition.render("", "gzip") == Exposition(lambda: following).render("", "gzip")


def test_the_page_of_metrics_is_current() -> None:
    page = Path(__file__).parents[3] / "docs" / "metrics.md"

    assert page.read_text(encoding="utf-8") == reference(), "run `python -m tests.metrics_page > docs/metrics.md`"
