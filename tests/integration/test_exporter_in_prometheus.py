"""`kctl exporter` in a real Prometheus, on groups of other clients of a real broker. Prometheus has the dashboards, the
alert rules and the names of other exporters."""

from collections.abc import Iterator
from contextlib import closing

import pytest
import yaml
from kafka import KafkaConsumer, KafkaProducer

from kctl.demo.kafka_broker import two_free_ports
from kctl.exporter import METRICS
from kctl.exporter.metric import GroupValue, OfCluster, OfGroup, PartitionColumn, WordColumn
from tests.conftest import eventually
from tests.consumers import member
from tests.exporters import Exporter, running_exporter
from tests.expressions import RULES_FILE, alerts, of_dashboards, selectors
from tests.meanwhile import Meanwhile
from tests.prometheus import Prometheus
from tests.servers import topics
from tests.servers.kafka_broker import KafkaBroker

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
NAMES = [RULES_FILE.with_name(f"{name}.rules.yml") for name in ("kafka_exporter", "kminion")]
"""Rules that record our values under the names of other exporters."""
CONFIG = """
[clusters.main]
bootstrap_servers = "{servers}"
[clusters.other]
bootstrap_servers = "{servers}"
[clusters.dead]
bootstrap_servers = "127.0.0.1:{dead}"
[exporter]
interval_seconds = 0.5
without_partitions = ["left-small"]
[status]
window_seconds = 1
batch_limit_seconds = 1
hold_seconds = 0
"""
KNOWN_OF_WORKERS_ALONE = {"kctl_consumer_position_offset", "kctl_consumer_ahead", "kctl_consumer_lost_messages"}
"""Only a worker has a position. The other metrics exist only while something is wrong."""
DASHBOARD_OF_KAFKA_EXPORTER = (  # all panels of kafka_exporter_overview.json in its repository
    'sum(rate(kafka_topic_partition_current_offset{instance="$instance", topic=~"$topic"}[1m])) by (topic)',
    'sum(kafka_consumergroup_lag{instance="$instance",topic=~"$topic"}) by (consumergroup, topic)',
    "sum(delta(kafka_topic_partition_current_offset{instance=~'$instance', topic=~\"$topic\"}[5m])/5) by (topic)",
    "sum(delta(kafka_consumergroup_current_offset{instance=~'$instance',topic=~\"$topic\"}[5m])/5) "
    "by (consumergroup, topic)",
    'sum by(topic) (kafka_topic_partitions{instance="$instance",topic=~"$topic"})',
)
OF_KMINION = (
    "sum by (group_id, topic_name) (kminion_kafka_consumer_group_topic_lag)",
    "sum by (topic_name) (rate(kminion_kafka_topic_high_water_mark_sum[1m]))",
    "sum by (group_id) (rate(kminion_kafka_consumer_group_topic_offset_sum[1m]))",
    "max by (group_id) (kminion_kafka_consumer_group_topic_partition_lag)",
    'count(kminion_kafka_consumer_group_info{state="Stable"} == 1)',
    "sum(kminion_kafka_topic_high_water_mark_sum - kminion_kafka_topic_low_water_mark_sum)",
)


class Reading(Meanwhile):
    def __init__(self, producer: KafkaProducer, consumer: KafkaConsumer) -> None:
        super().__init__(0.2)
        self._producer, self._consumer = producer, consumer

    def turn(self) -> None:
        for partition in range(4):
            self._producer.send("orders", b"x", partition=partition)
        self._producer.flush()
        while self._consumer.poll(50):  # else it may stay one message behind for ever, with messages fetched before
            pass
        self._consumer.commit()


@pytest.fixture(scope="module")
def exporter(broker: KafkaBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Exporter]:
    """`left` and `left-small` have no reader. The offset of `done` is above the log end. `billing` has a member that
    stands still, and has committed two of four partitions. One log begins at 1, one is empty."""
    servers, folder = broker.bootstrap_servers, tmp_path_factory.mktemp("exporter")
    path = folder / "exporter.toml"
    path.write_text(CONFIG.format(servers=servers, dead=two_free_ports()[0]))
    topics.create_topic(servers, "bills", 4)
    topics.produce(servers, "bills", {0: 10, 1: 20, 2: 30})
    topics.delete_records(servers, "bills", {0: 1})
    topics.commit(servers, "billing", "bills", {0: 4, 1: 20})
    for group, offset in (("left", 0), ("left-small", 0), ("done", 1_000_000)):
        topics.commit(servers, group, "orders", {0: offset})
    with (
        member(servers, "billing", "bills"),
        member(servers, "reading", "orders", auto_offset_reset="earliest") as consumer,
        closing(KafkaProducer(bootstrap_servers=servers)) as producer,
        Reading(producer, consumer) as reading,
        running_exporter(folder, "-c", str(path)) as running,
    ):
        stable = {(cluster, group): 1.0 for cluster in ("main", "other") for group in ("billing", "reading")}
        eventually(
            lambda: running.samples().of("kctl_group_state", "cluster", "group", state="stable") == stable,
            what="the members have joined",
        )
        yield running
    assert reading.wrong == []


@pytest.fixture(scope="module")
def prometheus(exporter: Exporter, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    groups = [group for path in (RULES_FILE, *NAMES) for group in yaml.safe_load(path.read_text())["groups"]]
    folder, address = tmp_path_factory.mktemp("prometheus"), exporter.url.removeprefix("http://")
    with closing(Prometheus(folder, [address], rules=yaml.safe_dump({"groups": groups}))) as running:
        count = 'count_over_time(kafka_topic_partitions{topic="bills"}[1m])'
        eventually(
            lambda: any(float(series["value"][1]) >= 4 for series in running.query(count)),
            what="it was recorded four times",
        )
        yield running


def groups_of(prometheus: Prometheus, expression: str) -> set[str]:
    return {each["metric"]["group"] for each in prometheus.query(expression)}


@pytest.mark.shows("dashboards and alerts work for every group, even without a fleet")
def test_every_panel_has_data_of_other_clients(exporter: Exporter, prometheus: Prometheus) -> None:
    # Panels may lack only metrics that workers, sinkers, storage or a fleet's master report.
    on_page = {name for name, _ in exporter.samples().all()}
    of_groups = {
        each.name
        for each in METRICS
        if isinstance(each, PartitionColumn | WordColumn | GroupValue | OfGroup | OfCluster)
    }
    shown = 0

    for name, expression in of_dashboards("10s").items():
        missing = {one.metric for one in selectors(expression)} - on_page
        assert missing & of_groups <= KNOWN_OF_WORKERS_ALONE, name
        if not missing:
            shown += 1
            eventually(lambda: "reading" in groups_of(prometheus, expression), what=name)  # noqa: B023 - at once
    assert shown >= 18


@pytest.mark.shows("groups of other clients are judged by their behavior")
def test_alerts_are_true_of_the_groups_that_are_in_trouble_and_of_no_other(
    exporter: Exporter, prometheus: Prometheus
) -> None:
    statuses = {"reading": "ok", "billing": "stalled", "left": "stopped", "left-small": "stopped", "done": "losing"}

    def is_true_of(alert: str) -> set[str]:
        return groups_of(prometheus, alerts()[alert]) & statuses.keys()

    def judged() -> dict[str, str]:
        found = exporter.samples().of("kctl_group_status", "group", "status", cluster="main")
        return {group: status for (group, status), value in found.items() if value == 1 and group in statuses}

    # The broker may still have a group of the tests before, whose members have not left.
    eventually(lambda: judged() == statuses, what="their status")
    eventually(lambda: is_true_of("KctlConsumerStopped") == {"left", "left-small"}, what="what nobody reads")
    eventually(lambda: is_true_of("KctlConsumerLosing") == {"done"}, 30, what="what lies above the end")
    assert is_true_of("KctlGroupWithoutMembers") == set()
    not_collected = prometheus.query(alerts()["KctlClusterNotCollected"])
    assert {each["metric"]["cluster"] for each in not_collected} == {"dead"}
    eventually(lambda: all(rule["health"] == "ok" for rule in prometheus.rules()), what="every rule is evaluated")
    assert [rule.get("lastError", "") for rule in prometheus.rules() if rule.get("lastError")] == []


@pytest.mark.shows("rules record the names that dashboards of kafka_exporter and kminion use")
def test_values_under_the_names_of_kafka_exporter_are_ours(prometheus: Prometheus) -> None:
    def of(name: str, *labels: str) -> dict[tuple[str, ...], float]:
        whose = 'consumergroup="billing"' if "consumergroup" in labels else 'topic="bills"'
        return values(prometheus, f'{name}{{cluster="main",{whose}}}', *labels)

    partition = ("consumergroup", "topic", "partition")
    zero, one = ("billing", "bills", "0"), ("billing", "bills", "1")
    assert of("kafka_consumergroup_lag", *partition) == {zero: 6, one: 0}
    assert of("kafka_consumergroup_current_offset", *partition) == {zero: 4, one: 20}
    assert of("kafka_consumergroup_lag_sum", *partition[:2]) == {zero[:2]: 6}
    assert of("kafka_consumergroup_current_offset_sum", *partition[:2]) == {zero[:2]: 24}
    assert of("kafka_consumergroup_members", "consumergroup") == {("billing",): 1}
    assert of("kafka_topic_partitions", "topic") == {("bills",): 2}
    assert of("kafka_topic_partition_current_offset", "topic", "partition") == {zero[1:]: 10, one[1:]: 20}
    assert of("kafka_topic_partition_oldest_offset", "topic", "partition") == {zero[1:]: 1, one[1:]: 0}


def test_values_under_the_names_of_kminion_are_ours(prometheus: Prometheus) -> None:
    def of(name: str, *labels: str) -> dict[tuple[str, ...], float]:
        whose = 'group_id="billing"' if "group_id" in labels else 'topic_name="bills"' if labels else ""
        return values(prometheus, f'kminion_{name}{{cluster="main",{whose}}}', *labels)

    assert of("kafka_consumer_group_topic_partition_lag", "group_id", "topic_name", "partition_id") == {
        ("billing", "bills", "0"): 6,
        ("billing", "bills", "1"): 0,
    }
    assert of("kafka_consumer_group_topic_lag", "group_id", "topic_name") == {("billing", "bills"): 6}
    assert of("kafka_consumer_group_topic_offset_sum", "group_id", "topic_name") == {("billing", "bills"): 24}
    assert of("kafka_consumer_group_members", "group_id") == {("billing",): 1}
    assert of("kafka_consumer_group_info", "group_id", "state") == {("billing", "Stable"): 1}
    assert of("kafka_topic_high_water_mark_sum", "topic_name") == {("bills",): 30}
    assert of("kafka_topic_low_water_mark_sum", "topic_name") == {("bills",): 1}
    assert of("kafka_topic_partition_high_water_mark", "topic_name", "partition_id")["bills", "1"] == 20
    assert of("kafka_topic_partition_low_water_mark", "topic_name", "partition_id")["bills", "0"] == 1
    assert of("exporter_up") == {(): 1}


def test_panels_that_were_made_for_other_exporters_have_data(prometheus: Prometheus, exporter: Exporter) -> None:
    address = exporter.url.removeprefix("http://")
    for query in (*DASHBOARD_OF_KAFKA_EXPORTER, *OF_KMINION):
        filled = query.replace("$instance", address).replace("$topic", "bills|never")
        assert prometheus.query(filled), query


def values(prometheus: Prometheus, expression: str, *labels: str) -> dict[tuple[str, ...], float]:
    found = prometheus.query(expression)
    assert all("group" not in each["metric"] for each in found), "a label of ours is left"
    return {tuple(each["metric"].get(label, "") for label in labels): float(each["value"][1]) for each in found}
