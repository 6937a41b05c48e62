"""Our values under the names of kafka_exporter and kminion, on a real scrape of a real broker, and in a Prometheus."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer

from kctl.exporter.compatible import COMPATIBLE
from kctl.kafka.access import plain
from kctl.kafka.connection import ClusterConnection
from kctl.kafka.offsets import commit
from kctl.testing import topics
from kctl.testing.kafka_broker import KafkaBroker
from tests.conftest import eventually
from tests.consumers import until_assigned
from tests.exporters import Exporter, running_exporter
from tests.prometheus import Prometheus

pytestmark = [pytest.mark.real, pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")]
Eventually = Callable[..., Any]

CONFIG = """
[clusters.main]
bootstrap_servers = "{servers}"
[clusters.other]
bootstrap_servers = "{servers}"
[exporter]
interval_seconds = 0.2
groups = ["billing"]
compatible_names = [{names}]
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
    """`billing`, with a member, has committed two of four partitions of `orders`; one log begins at 1, one is empty."""
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
    names = ", ".join(f'"{name}"' for name in COMPATIBLE)
    path.write_text(CONFIG.format(servers=broker.bootstrap_servers, names=names))
    with running_exporter(folder, "-c", str(path)) as running:
        eventually(running.is_ready, what="it is polled")
        state = 'state="Stable"'
        eventually(lambda: running.samples().page.count(state) == 2, what="its member has joined")
        yield running


@pytest.mark.shows("the names of kafka_exporter and kminion, on request, as their own dashboards read them")
def test_every_name_of_the_table_is_on_the_page_with_the_labels_of_the_other_exporter_and_the_cluster(
    exporter: Exporter,
) -> None:
    found = {(name, frozenset(label for label, _ in labels)) for name, labels in exporter.samples().all()}

    wanted = {(metric.name, frozenset(metric.labels)) for metrics in COMPATIBLE.values() for metric in metrics}
    assert wanted <= found
    assert all("cluster" in labels for _, labels in wanted)


def test_values_under_the_names_of_kafka_exporter_are_ours(exporter: Exporter, broker: KafkaBroker) -> None:
    samples = exporter.samples()

    def of(name: str, *labels: str) -> dict[tuple[str, ...], float]:
        return samples.of(name, *labels, cluster="main")

    partition = ("consumergroup", "topic", "partition")
    assert (
        of("kafka_consumergroup_lag", *partition)
        == {
            ("billing", "orders", "0"): 6,
            ("billing", "orders", "1"): 0,
        }
        == samples.of("kctl_consumer_lag", "group", "topic", "partition", cluster="main")
    )
    assert of("kafka_consumergroup_current_offset", *partition) == {
        ("billing", "orders", "0"): 4,
        ("billing", "orders", "1"): 20,
    }
    assert of("kafka_consumergroup_lag_sum", "consumergroup", "topic") == {("billing", "orders"): 6}
    assert of("kafka_consumergroup_current_offset_sum", "consumergroup", "topic") == {("billing", "orders"): 24}
    assert of("kafka_consumergroup_members", "consumergroup") == {("billing",): 1}
    assert of("kafka_topic_partitions", "topic") == {("orders",): 4}
    assert of("kafka_topic_partition_current_offset", "topic", "partition") == {
        ("orders", str(number)): end for number, end in enumerate((10, 20, 30, 0))
    }
    assert of("kafka_topic_partition_oldest_offset", "topic", "partition") == {
        ("orders", str(number)): start for number, start in enumerate((1, 0, 0, 0))
    }
    assert of("kafka_brokers") == {(): 1}
    assert of("kafka_broker_info", "id", "address") == {("1", broker.bootstrap_servers): 1}


def test_values_under_the_names_of_kminion_are_ours(exporter: Exporter) -> None:
    samples = exporter.samples()

    def of(name: str, *labels: str) -> dict[tuple[str, ...], float]:
        return samples.of(f"kminion_{name}", *labels, cluster="main")

    assert of("kafka_consumer_group_topic_partition_lag", "group_id", "topic_name", "partition_id") == {
        ("billing", "orders", "0"): 6,
        ("billing", "orders", "1"): 0,
    }
    assert of("kafka_consumer_group_topic_lag", "group_id", "topic_name") == {("billing", "orders"): 6}
    assert of("kafka_consumer_group_topic_offset_sum", "group_id", "topic_name") == {("billing", "orders"): 24}
    assert of("kafka_consumer_group_members", "group_id") == {("billing",): 1}
    assert of("kafka_consumer_group_info", "group_id", "protocol", "protocol_type", "state", "coordinator_id") == {
        ("billing", "", "consumer", "Stable", "1"): 1
    }
    assert of("kafka_topic_high_water_mark_sum", "topic_name") == {("orders",): 60}
    assert of("kafka_topic_low_water_mark_sum", "topic_name") == {("orders",): 1}
    assert of("kafka_topic_partition_high_water_mark", "topic_name", "partition_id")["orders", "2"] == 30
    assert of("kafka_topic_partition_low_water_mark", "topic_name", "partition_id")["orders", "0"] == 1
    assert of("exporter_up") == {(): 1}


def test_panels_that_were_made_for_other_exporters_have_data(
    exporter: Exporter, tmp_path: Path, eventually: Eventually
) -> None:
    address = exporter.url.removeprefix("http://")
    with ExitStack() as stack:
        prometheus = Prometheus(tmp_path, eventually, [address])
        stack.callback(prometheus.close)
        eventually(
            lambda: any(
                float(series["value"][1]) >= 3
                for series in prometheus.query("count_over_time(kafka_consumergroup_lag[1m])")
            ),
            what="it was scraped three times",
        )
        for query in (*DASHBOARD_OF_KAFKA_EXPORTER, *OF_KMINION):
            filled = query.replace("$instance", address).replace("$topic", "orders|never")
            assert prometheus.query(filled), query


def test_a_reload_brings_the_names_and_takes_them_away(
    broker: KafkaBroker, member: None, short_dir: Path, eventually: Eventually
) -> None:
    path = short_dir / "exporter.toml"

    path.write_text(CONFIG.format(servers=broker.bootstrap_servers, names=""))
    with running_exporter(short_dir, "-c", str(path)) as running:
        eventually(running.is_ready, what="it is polled")
        assert "kminion_" not in running.samples().page
        for names in ('"kminion"', ""):
            path.write_text(CONFIG.format(servers=broker.bootstrap_servers, names=names))
            running.process.send_signal(signal.SIGHUP)

            def is_so(wanted: bool = bool(names)) -> bool:
                return ("kminion_kafka_topic_high_water_mark_sum" in running.samples().page) == wanted

            eventually(is_so, what=f"names are [{names}]")
