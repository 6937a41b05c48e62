from __future__ import annotations

from dataclasses import replace

from prometheus_client import CollectorRegistry, generate_latest

from kctl.exporter import Exposition
from kctl.groups.snapshot import Clusters, ClusterSnapshot, GroupSnapshot
from kctl.reduce.base import GroupStats
from kctl.reduce.partitions import kafka_lag
from kctl.rows.partitions import ResetPolicy
from kctl.status import Assessment, Status
from tests.exporters import Samples
from tests.partitions import Row, assessments_of, columns_of, joined
from tests.snapshot_collector import SnapshotCollector

PARTS = ("groups", "committed", "members", "offsets")
ODD = 'a "quoted" \\ group\nof two lines, ü'


def group(name: str, *rows: tuple[str, int, int | None, int | None], start: int = 0) -> GroupSnapshot:
    """Rows are topic, partition, committed offset and end offset."""
    partitions = columns_of(
        *(
            Row(topic, number, start, committed, None, end, None, None, None, 2.5, ResetPolicy.NONE)
            for topic, number, committed, end in rows
        )
    )
    return GroupSnapshot(
        "main",
        name,
        partitions.of_group(0),
        assessments_of(*(Assessment(Status.OK, "commits come") for _ in rows)),
        lag=kafka_lag(partitions),
        stats=GroupStats("stable", 3),
        type="consumer",
        coordinator=2,
        age_seconds=2.5,
    )


def cluster(name: str, *groups: GroupSnapshot, is_up: bool = True) -> ClusterSnapshot:
    return ClusterSnapshot(
        cluster=name,
        groups=tuple(replace(each, cluster=name) for each in groups),
        taken_at=1000.0,
        taken_at_unix=1_700_000_000.5,
        collect_seconds=0.25,
        up=dict.fromkeys(PARTS, is_up),
        last_success={"groups": 1_700_000_000.0} if is_up else {},
        is_ready=is_up,
        columns=joined(groups),
    )


def page(*clusters: ClusterSnapshot) -> Samples:
    return Samples(Exposition(lambda: Clusters(clusters)).render()[0].decode())


def test_groups_of_several_clusters_are_on_one_page_beside_what_failed() -> None:
    main = cluster("main", group("billing", ("orders", 0, 4, 10), ("orders", 1, None, 20)), group(ODD, ("o", 0, 1, 3)))

    samples = page(main, cluster("other", is_up=False))

    assert samples.of("kctl_consumer_lag", "cluster", "group", "topic", "partition") == {
        ("main", "billing", "orders", "0"): 6,
        ("main", ODD, "o", "0"): 2,
    }
    assert samples.of("kctl_group_lag", "group") == {("billing",): 6, (ODD,): 2}
    assert samples.of("kctl_group_info", "group", "type", "coordinator")["billing", "consumer", "2"] == 1
    assert samples.of("kctl_group_state", "state", group="billing") == {("stable",): 1}
    assert samples.of("kctl_collect_up", "cluster", part="groups") == {("main",): 1, ("other",): 0}
    assert samples.of("kctl_cluster_groups", "cluster") == {("main",): 2}
    assert samples.page.count("# TYPE kctl_consumer_lag ") == 1


def test_a_cluster_that_is_collected_again_is_rendered_again_and_the_others_stay() -> None:
    main, other = cluster("main", group("billing", ("o", 0, 4, 10))), cluster("other", group("b", ("p", 0, 4, 10)))
    latest = Clusters((main, other))
    exposition = Exposition(lambda: latest)
    exposition.render()

    for groups in ([group("billing", ("o", 0, 5, 10))], [], [group("x", ("o", 0, 5, 10)), group("y", ("o", 0, 5, 10))]):
        latest = Clusters((cluster("main", *groups), other))
        assert exposition.render() == Exposition(lambda: latest).render()  # noqa: B023 - called at once


def test_a_registry_of_prometheus_client_has_the_same_samples() -> None:
    latest = Clusters(
        (cluster("main", group("billing", ("o", 0, 4, 10))), cluster("other", group(ODD, ("o", 0, 1, 3))))
    )
    registry = CollectorRegistry()
    registry.register(SnapshotCollector(lambda: latest))

    theirs, ours = generate_latest(registry).decode(), Exposition(lambda: latest).render()[0].decode()

    assert Samples(theirs).all() == Samples(ours).all()


def test_a_group_has_series_of_its_partitions_of_its_topics_or_of_itself_alone() -> None:
    rows = [("orders", 0, 4, 10), ("orders", 1, 4, 10)]
    groups = [replace(group(detail, *rows), detail=detail) for detail in ("partition", "topic", "group")]
    latest = Clusters((cluster("main", *groups),))
    registry = CollectorRegistry()
    registry.register(SnapshotCollector(lambda: latest))

    for samples in (page(*latest.clusters), Samples(generate_latest(registry).decode())):
        assert samples.of("kctl_consumer_lag", "group", "partition").keys() == {("partition", "0"), ("partition", "1")}
        assert samples.of("kctl_consumer_status", "group", "partition").keys() == {
            ("partition", "0"),
            ("partition", "1"),
        }
        assert samples.of("kctl_topic_lag", "group") == {("partition",): 12, ("topic",): 12}
        assert samples.of("kctl_group_lag", "group") == {("partition",): 12, ("topic",): 12, ("group",): 12}
