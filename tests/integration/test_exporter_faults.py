"""While brokers hang, end and return, `kctl exporter` answers at once and shows the age of each value."""

import time
from pathlib import Path

import pytest

from kctl.demo.kafka_broker import two_free_ports
from tests.conftest import eventually
from tests.exporters import Exporter, Samples, running_exporter
from tests.processes import stopped
from tests.servers import topics
from tests.servers.kafka_broker import KafkaBroker

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
        assert (status, "cluster main has not been polled completely yet" in reason) == (503, True)
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
