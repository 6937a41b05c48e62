"""Dashboards and alert rules, unchanged, on groups of other clients: a real broker, `kctl exporter`, a Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer

from kctl.demo.kafka_broker import two_free_ports
from kctl.exporter import METRICS
from kctl.exporter.metric import GroupValue, OfCluster, OfGroup, PartitionColumn, WordColumn
from kctl.kafka.client.access import plain
from kctl.kafka.client.connection import ClusterConnection
from kctl.kafka.offsets import commit
from tests.conftest import eventually
from tests.consumers import until_assigned
from tests.exporters import Exporter, running_exporter
from tests.expressions import RULES_FILE, alerts, of_dashboards
from tests.meanwhile import Meanwhile
from tests.prometheus import Prometheus
from tests.promql import selectors
from tests.servers.kafka_broker import KafkaBroker

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

CONFIG = """
[clusters.main]
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
"""Only a worker has a position; the other metrics exist only while something is wrong."""


class Reading(Meanwhile):
    def __init__(self, servers: str) -> None:
        super().__init__(0.2)
        self._producer = KafkaProducer(bootstrap_servers=servers)
        self._consumer = KafkaConsumer(
            "orders",
            bootstrap_servers=servers,
            group_id="reading",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
        )
        until_assigned(self._consumer)

    def turn(self) -> None:
        for partition in range(4):
            self._producer.send("orders", b"x", partition=partition)
        self._producer.flush()
        while self._consumer.poll(
            50
        ):  # else it may stay one message behind for ever, with messages that it fetched before
            pass
        self._consumer.commit()

    def close(self) -> None:
        self._consumer.close()
        self._producer.close()


@pytest.fixture(scope="module")
def exporter(broker: KafkaBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Exporter]:
    """`left` and `left-small` have no reader; the offset of `done` is above the log end."""
    servers, folder = broker.bootstrap_servers, tmp_path_factory.mktemp("exporter")
    path = folder / "exporter.toml"
    path.write_text(CONFIG.format(servers=servers, dead=two_free_ports()[0]))
    with ClusterConnection(plain(servers), 20) as connection:
        connection.open()
        for group in ("left", "left-small"):
            assert set(commit(connection, group, {("orders", 0): 0}).values()) == {None}
        assert set(commit(connection, "done", {("orders", 0): 1_000_000}).values()) == {None}
    with closing(Reading(servers)) as reading, reading, running_exporter(folder, "-c", str(path)) as running:
        yield running
    assert reading.wrong == []


@pytest.fixture(scope="module")
def prometheus(exporter: Exporter, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    with ExitStack() as stack:
        server = Prometheus(
            tmp_path_factory.mktemp("prometheus"), [exporter.url.removeprefix("http://")], rules=RULES_FILE.read_text()
        )
        stack.callback(server.close)
        count = "count_over_time(kctl_group_status[1m])"
        eventually(
            lambda: any(
                float(each["value"][1]) >= 4 and each["metric"]["group"] == "reading" for each in server.query(count)
            ),
            what="it was scraped four times",
        )
        yield server


def groups(series: list[dict[str, Any]]) -> set[str]:
    return {each["metric"]["group"] for each in series}


def test_clusters_and_groups_can_be_chosen_on_every_dashboard(prometheus: Prometheus) -> None:
    offered = prometheus.get("/api/v1/label/group/values", **{"match[]": 'kctl_group_status{cluster=~"main"}'})

    assert set(offered["data"]) >= {"reading", "left", "left-small", "done"}


@pytest.mark.shows("dashboards and alerts work for every group, even without a fleet")
def test_every_panel_has_data_of_other_clients(exporter: Exporter, prometheus: Prometheus) -> None:
    """Panels may lack only metrics that workers, sinkers, storage or a fleet's master report."""
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
            eventually(lambda: "reading" in groups(prometheus.query(expression)), what=name)  # noqa: B023 - at once
    assert shown >= 18


def test_alerts_are_true_of_the_groups_that_are_in_trouble_and_of_no_other(prometheus: Prometheus) -> None:
    def is_true_of(alert: str) -> set[str]:
        return groups(prometheus.query(alerts()[alert]))

    eventually(lambda: is_true_of("KctlConsumerStopped") == {"left", "left-small"}, what="what nobody reads")
    eventually(lambda: is_true_of("KctlConsumerLosing") == {"done"}, 30, what="what lies above the end")
    assert is_true_of("KctlGroupWithoutMembers") == set()
    not_collected = prometheus.query(alerts()["KctlClusterNotCollected"])
    assert {each["metric"]["cluster"] for each in not_collected} == {"dead"}
    eventually(lambda: all(rule["health"] == "ok" for rule in prometheus.rules()), what="every rule is evaluated")
    assert [rule.get("lastError", "") for rule in prometheus.rules() if rule.get("lastError")] == []
