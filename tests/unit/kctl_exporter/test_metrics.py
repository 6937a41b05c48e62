import gzip
import zlib
from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.core import Metric as Family
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families

from kctl.exporter import Exposition
from kctl.exporter.text import Exposed, TextBlock, gzipped, plain
from kctl.groups.snapshot import Clusters, Detail
from kctl.master.snapshot import FleetSnapshot, Reduced, RpcStats
from kctl.rows.partitions import LagTotals
from kctl.rows.workers import WorkerRow, Workers
from kctl.status import Assessment, Status
from kctl.status.assessments import NOT_ASSESSED
from kctl_agent.replies.block_size import StorageReply, TableReply
from kctl_agent.replies.workers import CommitStats, SinkerStats
from tests.exporters import Samples
from tests.fleet_snapshot import partition, snapshot
from tests.partitions import Row, assessments_of, columns_of
from tests.served_groups import cluster, group

ODD = 'a "quoted" \\ group\nof two lines, ü'


def page(latest: Exposed | None) -> Samples:
    return Samples(Exposition(lambda: latest).render()[0].decode())


def collected(*rows: Row) -> FleetSnapshot:
    whole = snapshot()
    offsets = replace(whole.offset_checker, result=columns_of(*rows))
    return replace(whole, offset_checker=offsets, assessments=NOT_ASSESSED)


def full_snapshot() -> FleetSnapshot:
    rows = [partition(0), partition(1, None), partition(2)]
    rows += [each._replace(topic="100%", worker=None) for each in rows[:2]]
    workers = (
        WorkerRow("worker-0", "worker", last_batch_seconds=0.5, rows_total=7, queries_failed=2),
        WorkerRow("sinker-0", "sinker", sinker=SinkerStats(handled=3, in_flight=0, handler_p99_seconds=1)),
    )
    return replace(
        collected(*rows),
        group=ODD,
        workers=Reduced(Workers(workers), ("worker-0",), ("worker-0",), (), 0.1),
        assessments=assessments_of(*[Assessment(Status.WARN, "it grows", 2.5, 0.25, None)] * len(rows)),
        rpc={"ping": RpcStats({"ok": 2, "incomplete": 0, "failed": 1}, (1, 1, *[0] * 9, 1), 3.5)},
        operations_total={("pause", "done"): 2, ("pause", "refused"): 1},
        http_refused_total={"unauthorized": 3},
        memory_limit_bytes={"worker-0": 1_000_000_000},
    )


CLUSTERS = Clusters(
    (
        cluster("main", group("billing", 6), group("lost", None), group(ODD, 2)),
        cluster("other", errors={"groups": "away"}),
    )
)


def test_what_is_not_known_is_absent_and_never_zero() -> None:
    samples = page(snapshot())

    assert samples.of("kctl_consumer_lag", "partition") == {("0",): 6, ("1",): 6}
    assert samples.of("kctl_consumer_committed_offset", "partition") == {("0",): 4, ("1",): 4}
    assert samples.of("kctl_consumer_position_offset", "partition") == {("0",): 4, ("1",): 4, ("2",): 4}
    assert samples.of("kctl_partition_end_offset", "partition") == {("0",): 10, ("1",): 10}
    assert samples.of("kctl_storage_messages", "state") == {("pending",): 7, ("processing",): 0}
    assert samples.of("kctl_group_behind_transaction") == {}
    assert page(replace(snapshot(), kafka_lag=LagTotals(None))).of("kctl_group_lag") == {}
    known = page(replace(snapshot(), kafka_lag=LagTotals(0, behind_transaction=12)))
    assert (known.of("kctl_group_lag"), known.of("kctl_group_behind_transaction")) == ({(): 0}, {(): 12})
    assert page(None).page == ""


FLEETS = [collected(partition(0), partition(1, lag)) for lag in (6, 6, 6, None, None, None, 4, 6)]
GROUPS = [[group("billing", 6)], [group("billing", 5)], [], [group("x", 5), group("billing", 6)]]


@pytest.mark.parametrize(
    "snapshots",
    [
        [*FLEETS, collected(partition(0)), FLEETS[0]],
        [Clusters((cluster("main", *groups), cluster("other", group("billing", 6)))) for groups in GROUPS],
    ],
    ids=["a fleet", "clusters"],
)
def test_snapshots_one_after_the_other_are_rendered_as_each_by_itself(snapshots: list[Exposed]) -> None:
    latest = snapshots[0]
    exposition = Exposition(lambda: latest)

    for latest in snapshots:
        assert exposition.render() == Exposition(lambda: latest).render()  # noqa: B023 - called at once


def test_a_table_exports_what_it_holds_and_the_commits_of_each_worker() -> None:
    table = TableReply(version=7, rows=1000, files=12, small_files=10, last_commit_seconds=2.5)
    latest = full_snapshot()
    commits = Workers((WorkerRow("worker-0", "worker", commits=CommitStats(failed=2, retried=5)),))
    of_table = replace(latest.block_size, result=StorageReply(bytes=4096, table=table))

    samples = page(replace(latest, block_size=of_table, workers=replace(latest.workers, result=commits)))

    names = {name for name, _ in samples.all() if "_table_" in name}
    assert {name.removeprefix("kctl_table_"): [*samples.of(name).values()] for name in names} == {
        "version": [7],
        "rows": [1000],
        "files": [12],
        "small_files": [10],
        "last_commit_age_seconds": [2.5],
        "commit_failures_total": [2],
        "commit_retries_total": [5],
    }
    assert samples.of("kctl_storage_full") == {(): 0}
    assert not [name for name, _ in page(latest).all() if "_table_" in name], "unknown is absent"


def test_a_fleet_counts_questions_operations_and_rejected_requests_and_escapes_its_names() -> None:
    samples = page(full_snapshot())

    assert samples.of("kctl_operations_total", "operation", "outcome") == {
        ("pause", "done"): 2,
        ("pause", "refused"): 1,
    }
    assert samples.of("kctl_http_refused_total", "code") == {("unauthorized",): 3}
    assert samples.of("kctl_consumer_lag", "group", "topic", "partition") == {
        (ODD, topic, number): 6 for topic, number in (("orders", "0"), ("orders", "2"), ("100%", "0"))
    }
    buckets = samples.of("kctl_rpc_duration_seconds_bucket", "le")
    assert (buckets["0.001",], buckets["0.0025",], buckets["2.5",], buckets["+Inf",]) == (1, 2, 2, 3)
    assert samples.of("kctl_rpc_duration_seconds_sum") == {(): 3.5}


def test_groups_of_several_clusters_are_on_one_page_with_the_detail_they_have() -> None:
    samples = page(CLUSTERS)

    assert samples.of("kctl_consumer_lag", "cluster", "group", "topic", "partition") == {
        ("main", "billing", "orders", "0"): 6,
        ("main", ODD, "orders", "0"): 2,
    }
    assert samples.of("kctl_group_lag", "group") == {("billing",): 6, (ODD,): 2}
    assert samples.of("kctl_group_info", "group", "type", "coordinator")["billing", "classic", "1"] == 1
    assert samples.of("kctl_group_state", "state", group="billing") == {("stable",): 1}
    assert samples.of("kctl_collect_up", "cluster", part="groups") == {("main",): 1, ("other",): 0}
    assert samples.of("kctl_cluster_groups", "cluster") == {("main",): 3}
    assert samples.page.count("# TYPE kctl_consumer_lag ") == 1

    details: tuple[Detail, ...] = ("partition", "topic", "group")

    samples = page(Clusters((cluster("main", *(replace(group(each, 12), detail=each) for each in details)),)))
    for name in ("kctl_consumer_lag", "kctl_consumer_status"):
        assert samples.of(name, "group", "partition").keys() == {("partition", "0")}
    assert samples.of("kctl_topic_lag", "group") == {("partition",): 12, ("topic",): 12}
    assert samples.of("kctl_group_lag", "group") == {("partition",): 12, ("topic",): 12, ("group",): 12}


@pytest.mark.shows("`/metrics` omits unknown values and ended series; OpenMetrics, gzip")
@pytest.mark.parametrize("latest", [full_snapshot(), CLUSTERS], ids=["fleet", "clusters"])
def test_prometheus_client_reads_the_same_from_both_formats(latest: Exposed) -> None:
    exposition = Exposition(lambda: latest)

    text, text_type, _ = exposition.render()
    openmetrics, openmetrics_type, _ = exposition.render("application/openmetrics-text;version=1.0.0")

    assert (text_type.split(";")[0], openmetrics_type.split(";")[0]) == ("text/plain", "application/openmetrics-text")
    assert families(text_string_to_metric_families, text) == families(parse_openmetrics, openmetrics)


def families(parse: Callable[..., Iterable[Family]], body: bytes) -> dict[str, object]:
    found: dict[str, object] = {}
    for family in parse(body.decode()):
        samples = {(each.name, frozenset(each.labels.items())): each.value for each in family.samples}
        found[family.name] = (family.type, family.documentation, samples)
    return found


def test_gzip_is_for_clients_that_accept_it() -> None:
    exposition = Exposition(full_snapshot)
    plain, _, is_plain = exposition.render("", "identity, gzip;q=0")

    body, _, is_gzipped = exposition.render("", "deflate, gzip")

    assert (is_plain, is_gzipped) == (False, True)
    assert gzip.decompress(body) == plain


@given(st.lists(st.binary(max_size=5000), max_size=20))
def test_compressed_blocks_are_one_gzip_member_of_the_whole_text(texts: list[bytes]) -> None:
    blocks = [TextBlock(lambda text=text: text) for text in texts]  # type: ignore[misc]
    decompressor = zlib.decompressobj(wbits=31)  # gzip only; zlib verifies the checksum

    found = decompressor.decompress(gzipped(blocks))

    assert found == plain(blocks) == b"".join(texts)
    assert decompressor.eof
    assert decompressor.unused_data == b""


def test_a_page_that_is_asked_for_is_ready_when_its_snapshot_becomes_the_last_one() -> None:
    latest, following = snapshot(), replace(snapshot(), kafka_lag=LagTotals(2))
    exposition = Exposition(lambda: latest)
    assert exposition.ready("", "gzip") is None, "nobody has asked yet"
    before = exposition.render("", "gzip")

    exposition.prepare(following)

    assert exposition.ready("", "gzip") == before, "the last snapshot is still the one before"
    assert exposition.ready("", "") is None, "nobody has asked for it without gzip"
    latest = following
    assert exposition.ready("", "gzip") == exposition.render("", "gzip") != before
    assert exposition.render("", "gzip") == Exposition(lambda: following).render("", "gzip")
