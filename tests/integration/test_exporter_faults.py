"""While brokers hang, end and return, `kctl exporter` answers at once and shows the age of each value."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from kctl.demo.kafka_broker import two_free_ports
from tests.conftest import eventually
from tests.exporters import Exporter, Samples, running_exporter
from tests.meanwhile import Meanwhile
from tests.processes import stopped
from tests.servers import topics
from tests.servers.kafka_broker import KafkaBroker
from tests.servers.kafka_cluster import running_cluster

STALE_AFTER_SECONDS = 4.0
_CONFIG = """
[clusters.main]
bootstrap_servers = "{servers}"
{more}
[exporter]
interval_seconds = 0.2
timeout_seconds = 1.0
stale_after_seconds = {stale}
"""


def written(folder: Path, servers: str, more: str = "", stale: float = STALE_AFTER_SECONDS) -> Path:
    path = folder / "exporter.toml"
    path.write_text(_CONFIG.format(servers=servers, more=more, stale=stale))
    return path


def scraped(exporter: Exporter) -> Samples:
    began = time.monotonic()
    samples = exporter.samples()
    assert time.monotonic() - began < 0.9, "a scrape has waited"
    return samples


def up(samples: Samples, cluster: str = "main") -> set[float]:
    return set(samples.of("kctl_collect_up", "part", cluster=cluster).values())


def ages(samples: Samples) -> dict[tuple[str, ...], float]:
    return samples.of("kctl_group_stats_age_seconds", "group", cluster="main")


@pytest.mark.shows("if brokers hang, end or move, scrapes still answer at once and values age")
def test_pages_tell_the_truth_about_a_broker_that_is_late_hangs_or_ends(short_dir: Path) -> None:
    """A second cluster never answers, and delays nothing."""
    ports, dead = two_free_ports(), two_free_ports()[0]
    broker = KafkaBroker(short_dir / "broker", choose_ports=lambda: ports)
    other = f'[clusters.dead]\nbootstrap_servers = "127.0.0.1:{dead}"\n'
    config = written(short_dir, f"127.0.0.1:{ports[0]}", other, stale=6.0)
    with running_exporter(short_dir, "-c", str(config), is_forked=False) as exporter:
        eventually(lambda: up(exporter.samples()) == {0}, what="the first poll has failed")
        status, reason = exporter.get("/readyz")
        assert (status, "cluster main was not polled in full yet" in reason) == (503, True)
        assert exporter.samples().of("kctl_cluster_groups", "cluster") == {}
        try:
            broker.start()
            topics.create_topic(broker.bootstrap_servers, "orders", 1)
            topics.commit(broker.bootstrap_servers, "billing", "orders", {0: 0})
            eventually(lambda: ages(scraped(exporter)), what="it is polled")
            eventually(exporter.is_ready, what="it gives up waiting for the dead cluster")
            assert up(scraped(exporter)) == {1}
            assert up(scraped(exporter), "dead") == {0}

            assert broker.pid is not None
            with stopped([broker.pid]):
                eventually(lambda: up(scraped(exporter)) == {0}, what="it is known to hang")
                assert exporter.samples().of("kctl_consumer_lag", "partition", cluster="main") == {("0",): 0}
                eventually(lambda: ages(scraped(exporter)).get(("billing",), 0) > 3, what="its values grow older")
                eventually(lambda: not ages(scraped(exporter)), what="its series end")
                assert 'group="billing"' not in exporter.samples().page
            eventually(lambda: ages(scraped(exporter)).get(("billing",), 9) < 2, 10, what="it is fresh again")

            broker.kill()
            eventually(lambda: up(scraped(exporter)) == {0}, what="it is known to have ended")
            broker.start()
            eventually(lambda: up(scraped(exporter)) == {1}, 10, what="it is polled again")
            assert ages(exporter.samples())["billing",] < 2
        finally:
            broker.stop()


class Scraping(Meanwhile):
    def __init__(self, exporter: Exporter) -> None:
        super().__init__(1.0)
        self._exporter = exporter
        self.pages: list[Samples] = []

    def turn(self) -> None:
        self.pages.append(scraped(self._exporter))


@pytest.mark.long
def test_trouble_of_two_clusters_leaves_the_third_alone(short_dir: Path) -> None:
    properties = {"offsets.topic.num.partitions": "6", "leader.imbalance.check.interval.seconds": "1"}
    names = [f"group-{number}" for number in range(12)]
    with ExitStack() as stack:
        cluster = stack.enter_context(running_cluster(properties))
        third = stack.enter_context(KafkaBroker(short_dir / "third"))
        for servers in (cluster.bootstrap_servers, third.bootstrap_servers):
            topics.create_topic(servers, "orders", 1)
            for name in names:
                topics.commit(servers, name, "orders", {0: 0})
        more = "".join(
            f'[clusters.{name}]\nbootstrap_servers = "{servers}"\n'
            for name, servers in (("third", third.bootstrap_servers), ("dead", f"127.0.0.1:{two_free_ports()[0]}"))
        )
        config = written(short_dir, cluster.bootstrap_servers, more, stale=60.0)
        exporter = stack.enter_context(running_exporter(short_dir, "-c", str(config), is_forked=False))
        eventually(lambda: len(ages(exporter.samples())) == len(names), what="all groups")
        broker, new_port = cluster.brokers[2], two_free_ports()[0]

        with Scraping(exporter) as scraping:
            broker.kill()
            eventually(lambda: up(exporter.samples()) == {1}, what="the others have taken over")
            broker.launch((new_port, cluster.ports[2][1]))()
            eventually(lambda: coordinated(exporter, "2"), 90, what="it coordinates groups again")
            eventually(lambda: max(ages(exporter.samples()).values()) < 2 and up(exporter.samples()) == {1})
            assert len(ages(exporter.samples())) == len(names)

    assert scraping.wrong == []
    for page in scraping.pages:
        assert up(page, "third") == {1}
        assert up(page, "dead") == {0}
        of_third = page.of("kctl_group_stats_age_seconds", "group", cluster="third")
        assert len(of_third) == len(names)
        assert max(of_third.values()) < 3
        assert len(ages(page)) == len(names), "no group has vanished meanwhile"


def coordinated(exporter: Exporter, broker: str) -> int:
    found = exporter.samples().of("kctl_group_info", "group", "coordinator", cluster="main")
    return sum(coordinator == broker for _, coordinator in found)
