"""Our values under the names of kafka_exporter and kminion, in a real Prometheus with a real broker."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import yaml
from kafka import KafkaConsumer, KafkaProducer

from kctl.kafka.client.access import plain
from kctl.kafka.client.connection import ClusterConnection
from kctl.kafka.offsets import commit
from tests.conftest import eventually
from tests.consumers import until_assigned
from tests.exporters import Exporter, running_exporter
from tests.prometheus import Prometheus, require
from tests.servers import topics
from tests.servers.kafka_broker import KafkaBroker

RULES = Path(__file__).parents[2] / "deploy" / "prometheus"
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
NAMES = ("kafka_exporter", "kminion")

CONFIG = """
[clusters.main]
bootstrap_servers = "{servers}"
[clusters.other]
bootstrap_servers = "{servers}"
[exporter]
interval_seconds = 0.2
groups = ["billing"]
"""
DASHBOARD_OF_KAFKA_EXPORTER = (
    'sum(rate(kafka_topic_partition_current_offset{instance="$instance", topic=~"$topic"}[1m])) by (topic)',
    'sum(kafka_consumergroup_lag{instance="$instance",topic=~"$topic"}) by (consumergroup, topic)',
    "sum(delta(kafka_topic_partition_current_offset{instance=~'$instance', topic=~\"$topic\"}[5m])/5) by (topic)",
    "sum(delta(kafka_consumergroup_current_offset{instance=~'$instance',topic=~\"$topic\"}[5m])/5) "
    "by (consumergroup, topic)",
    'sum by(topic) (kafka_topic_partitions{instance="$instance",topic=~"$topic"})',
)
"""All panels of kafka_exporter_overview.json in its repository."""
OF_KMINION = (
    "sum by (group_id, topic_name) (kminion_kafka_consumer_group_topic_lag)",
    "sum by (topic_name) (rate(kminion_kafka_topic_high_water_mark_sum[1m]))",
    "sum by (group_id) (rate(kminion_kafka_consumer_group_topic_offset_sum[1m]))",
    "max by (group_id) (kminion_kafka_consumer_group_topic_partition_lag)",
    'count(kminion_kafka_consumer_group_info{state="Stable"} == 1)',
    "sum(kminion_kafka_topic_high_water_mark_sum - kminion_kafka_topic_low_water_mark_sum)",
)


@pytest.fixture(scope="module")
def member(broker: KafkaBroker) -> Iterator[None]:
    """`billing` has committed two of four partitions; one log begins at 1, one is empty."""
    servers = broker.bootstrap_servers
    with closing(KafkaProducer(bootstrap_servers=servers)) as producer:
        for partition, count in ((0, 10), (1, 20), (2, 30)):
            for _ in range(count):
                producer.send("orders", b"x", partition=partition)
        producer.flush()
    topics.delete_records(servers, "orders", {0: 1})
    with ClusterConnection(plain(servers), 20) as connection:
        connection.open()
        assert set(commit(connection, "billing", {("orders", 0): 4, ("orders", 1): 20}).values()) == {None}
    with closing(
        KafkaConsumer("orders", bootstrap_servers=servers, group_id="billing", enable_auto_commit=False)
    ) as one:
        until_assigned(one)
        yield


@pytest.fixture(scope="module")
def exporter(broker: KafkaBroker, member: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Exporter]:
    folder = tmp_path_factory.mktemp("exporter")
    path = folder / "exporter.toml"
    path.write_text(CONFIG.format(servers=broker.bootstrap_servers))
    with running_exporter(folder, "-c", str(path)) as running:
        eventually(running.is_ready, what="it is polled")
        stable = {("main",): 1.0, ("other",): 1.0}
        eventually(
            lambda: running.samples().of("kctl_group_state", "cluster", state="stable") == stable,
            what="its member has joined",
        )
        yield running


@pytest.fixture(scope="module")
def prometheus(exporter: Exporter, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    groups = [yaml.safe_load((RULES / f"{name}.rules.yml").read_text())["groups"] for name in NAMES]
    rules = yaml.safe_dump({"groups": [group for each in groups for group in each]})
    address = exporter.url.removeprefix("http://")
    running = Prometheus(tmp_path_factory.mktemp("prometheus"), [address], rules=rules)
    with closing(running):
        eventually(
            lambda: any(
                float(series["value"][1]) >= 3
                for series in running.query("count_over_time(kafka_topic_partitions[1m])")
            ),
            what="it was recorded three times",
        )
        yield running


@pytest.mark.parametrize("name", NAMES)
def test_prometheus_takes_the_rules(name: str) -> None:
    [promtool] = require("promtool")
    path = RULES / f"{name}.rules.yml"
    command: list[str | Path] = [promtool, "check", "rules", "--lint=all", "--lint-fatal", path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.shows("rules record the names that dashboards of kafka_exporter and kminion use")
def test_values_under_the_names_of_kafka_exporter_are_ours(prometheus: Prometheus) -> None:
    def of(name: str, *labels: str) -> dict[tuple[str, ...], float]:
        return values(prometheus, f'{name}{{cluster="main"}}', *labels)

    partition = ("consumergroup", "topic", "partition")
    assert of("kafka_consumergroup_lag", *partition) == {("billing", "orders", "0"): 6, ("billing", "orders", "1"): 0}
    assert of("kafka_consumergroup_current_offset", *partition) == {
        ("billing", "orders", "0"): 4,
        ("billing", "orders", "1"): 20,
    }
    assert of("kafka_consumergroup_lag_sum", "consumergroup", "topic") == {("billing", "orders"): 6}
    assert of("kafka_consumergroup_current_offset_sum", "consumergroup", "topic") == {("billing", "orders"): 24}
    assert of("kafka_consumergroup_members", "consumergroup") == {("billing",): 1}
    assert of("kafka_topic_partitions", "topic") == {("orders",): 2}
    assert of("kafka_topic_partition_current_offset", "topic", "partition") == {
        ("orders", "0"): 10,
        ("orders", "1"): 20,
    }
    assert of("kafka_topic_partition_oldest_offset", "topic", "partition") == {("orders", "0"): 1, ("orders", "1"): 0}


def test_values_under_the_names_of_kminion_are_ours(prometheus: Prometheus) -> None:
    def of(name: str, *labels: str) -> dict[tuple[str, ...], float]:
        return values(prometheus, f'kminion_{name}{{cluster="main"}}', *labels)

    assert of("kafka_consumer_group_topic_partition_lag", "group_id", "topic_name", "partition_id") == {
        ("billing", "orders", "0"): 6,
        ("billing", "orders", "1"): 0,
    }
    assert of("kafka_consumer_group_topic_lag", "group_id", "topic_name") == {("billing", "orders"): 6}
    assert of("kafka_consumer_group_topic_offset_sum", "group_id", "topic_name") == {("billing", "orders"): 24}
    assert of("kafka_consumer_group_members", "group_id") == {("billing",): 1}
    assert of("kafka_consumer_group_info", "group_id", "state") == {("billing", "Stable"): 1}
    assert of("kafka_topic_high_water_mark_sum", "topic_name") == {("orders",): 30}
    assert of("kafka_topic_low_water_mark_sum", "topic_name") == {("orders",): 1}
    assert of("kafka_topic_partition_high_water_mark", "topic_name", "partition_id")["orders", "1"] == 20
    assert of("kafka_topic_partition_low_water_mark", "topic_name", "partition_id")["orders", "0"] == 1
    assert of("exporter_up") == {(): 1}


def test_panels_that_were_made_for_other_exporters_have_data(prometheus: Prometheus, exporter: Exporter) -> None:
    address = exporter.url.removeprefix("http://")
    for query in (*DASHBOARD_OF_KAFKA_EXPORTER, *OF_KMINION):
        filled = query.replace("$instance", address).replace("$topic", "orders|never")
        assert prometheus.query(filled), query


def values(prometheus: Prometheus, expression: str, *labels: str) -> dict[tuple[str, ...], float]:
    found = prometheus.query(expression)
    assert all("group" not in each["metric"] for each in found), "a label of ours is left"
    return {tuple(each["metric"].get(label, "") for label in labels): float(each["value"][1]) for each in found}
