"""`kctl exporter` on a real broker: open transactions, odd names, its polls, and a broker that hangs, ends or returns.
Groups of each kind are in test_exporter_kinds.py."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from kafka import KafkaProducer

from kctl.config.sections import KafkaSection
from kctl.demo.kafka_broker import two_free_ports
from kctl.groups.broker_cache import BrokerCache
from kctl.kafka.client.access import plain
from kctl.kafka.polls.cluster_reader import ClusterReader
from kctl.kafka.polls.group_sources import AllGroups
from kctl.reduce.partitions import offset_checker
from tests.conftest import eventually
from tests.consumers import member
from tests.exporters import Exporter, Samples, running_exporter
from tests.processes import stopped
from tests.servers import topics
from tests.servers.kafka_broker import KafkaBroker

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")


@pytest.fixture(scope="module")
def exporter(broker: KafkaBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Exporter]:
    settings = ("exporter.interval_seconds=0.2", "exporter.read_committed=committed-*")
    words = ("-b", broker.bootstrap_servers, *(word for setting in settings for word in ("--set", setting)))
    with running_exporter(tmp_path_factory.mktemp("exporter"), *words) as running:
        yield running


@pytest.mark.shows("an open transaction is lag, except for groups in `exporter.read_committed`")
def test_an_open_transaction_is_no_lag_of_committed_records(broker: KafkaBroker, exporter: Exporter) -> None:
    topics.create_topic(broker.bootstrap_servers, "paid", 1)
    topics.produce(broker.bootstrap_servers, "paid", {0: 4})
    topics.commit(broker.bootstrap_servers, "committed-only", "paid", {0: 4})
    topics.commit(broker.bootstrap_servers, "everything", "paid", {0: 4})

    def lags() -> tuple[dict[tuple[str, ...], float], ...]:
        samples = exporter.samples()
        return tuple(samples.of("kctl_group_lag", group=group) for group in ("committed-only", "everything"))

    with closing(KafkaProducer(bootstrap_servers=broker.bootstrap_servers, transactional_id="payer")) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        for _ in range(3):
            producer.send("paid", b"open", partition=0)
        producer.flush()
        eventually(lambda: lags() == ({(): 0}, {(): 3}), what="lag while it is open")
        assert asyncio.run(end_of_fleet(broker, "paid")) == (4, 3)
        producer.commit_transaction()

    eventually(lambda: lags() == ({(): 4}, {(): 4}), what="its messages and its marker")


async def end_of_fleet(broker: KafkaBroker, topic: str) -> tuple[int | None, int | None]:
    """The end for a fleet that reads only committed records, and how many messages come after it."""
    section = KafkaSection(
        bootstrap_servers=broker.bootstrap_servers, group="readers", topics=(topic,), isolation_level="read_committed"
    )
    cache = BrokerCache.of(section, plain(broker.bootstrap_servers), 5)
    try:
        async with asyncio.timeout(30):
            while not (rows := list(offset_checker((), cache.snapshot()).rows())):
                await cache.refresh(5)
    finally:
        await cache.close()
    return rows[0].kafka_max_offset, rows[0].behind_transaction


@pytest.mark.shows("group ids may have quotes, backslashes, newlines and Unicode")
def test_a_group_id_may_hold_quotes_backslashes_newlines_and_unicode(broker: KafkaBroker, exporter: Exporter) -> None:
    names = ['a "quoted" one', "back\\slash\\", "two\nlines", "größe-消费者-🚚", " "]
    topics.produce(broker.bootstrap_servers, "orders", {3: 1})
    for name in names:
        topics.commit(broker.bootstrap_servers, name, "orders", {3: 0})

    eventually(lambda: all(exporter.samples().lag(name) for name in names), what="all of them")
    for name in names:
        assert exporter.samples().lag(name).keys() == {("orders", "3")}, name
        assert exporter.samples().of("kctl_group_state", group=name, state="empty") == {(): 1}


@pytest.mark.shows("a cycle sends one request per broker, two per coordinator and leader; Metadata for new topics")
def test_a_cycle_asks_each_broker_once_and_for_new_metadata_only(broker: KafkaBroker) -> None:
    topics.create_topic(broker.bootstrap_servers, "counted", 2)
    topics.commit(broker.bootstrap_servers, "counted-1", "counted", {0: 0})
    topics.commit(broker.bootstrap_servers, "counted-2", "counted", {1: 0})
    reader = ClusterReader(
        plain(broker.bootstrap_servers),
        10,
        AllGroups(lambda group: group.startswith("counted-")),
        wants_topic=lambda topic: topic != "orders",
    )
    with closing(reader):
        first, asked_first = reader.read(), dict(reader.asked)
        reader.read()
        again = dict(reader.asked)
        with member(broker.bootstrap_servers, "counted-1", "counted"):
            with_members, asked_with_members = reader.read(), dict(reader.asked)
        topics.commit(broker.bootstrap_servers, "counted-2", "orders", {0: 0})
        filtered = reader.read()

    of_empty = {"ListGroups": 1, "OffsetFetch": 1, "ListOffsets": 2}
    assert asked_first == of_empty | {"Metadata": 1}
    assert again == of_empty
    assert asked_with_members == of_empty | {"DescribeGroups": 1}
    assert (first.members, with_members.members["counted-1"]) == ({"counted-1": 0, "counted-2": 0}, 1)
    assert filtered.committed["counted-2"].topics == (("counted", (1,)),)
    assert first.errors == with_members.errors == filtered.errors == {}


TWO_CLUSTERS = """
[clusters.main]
bootstrap_servers = "127.0.0.1:{main}"
[clusters.dead]
bootstrap_servers = "127.0.0.1:{dead}"
[exporter]
interval_seconds = 0.2
timeout_seconds = 1.0
stale_after_seconds = 6.0
"""


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
    # A second cluster never answers, and delays no other.
    ports, dead = two_free_ports(), two_free_ports()[0]
    broker = KafkaBroker(short_dir / "broker", choose_ports=lambda: ports)
    (config := short_dir / "exporter.toml").write_text(TWO_CLUSTERS.format(main=ports[0], dead=dead))
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
