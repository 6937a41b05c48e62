"""`kctl exporter` against a real broker: every group as Kafka's own tools report it, in every awkward state."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer

from kctl.kafka.client.access import plain
from kctl.kafka.client.connection import ClusterConnection
from kctl.kafka.offsets import commit as commit_offsets
from kctl.kafka.polls.all_groups import AllGroups
from kctl.kafka.polls.cluster_reader import ClusterReader
from kctl.testing.jvm import kafka_command
from kctl.testing.kafka_broker import KafkaBroker, two_free_ports
from tests.consumers import until_assigned
from tests.exporters import Exporter, Samples, running_exporter
from tests.group_members import streams_member
from tests.servers import kafka_tools, topics
from tests.terminals import Terminal
from tests.terminals import plain as plain_lines

pytestmark = [
    pytest.mark.real,
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]
Eventually = Callable[..., Any]


@pytest.fixture(scope="module")
def exporter(broker: KafkaBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Exporter]:
    settings = ("exporter.interval_seconds=0.2", "exporter.read_committed=committed-*")
    words = ("-b", broker.bootstrap_servers, *(word for setting in settings for word in ("--set", setting)))
    with running_exporter(tmp_path_factory.mktemp("exporter"), *words) as running:
        yield running


def produce(broker: KafkaBroker, topic: str, counts: dict[int, int]) -> None:
    with closing(KafkaProducer(bootstrap_servers=broker.bootstrap_servers)) as producer:
        for partition, count in counts.items():
            for number in range(count):
                producer.send(topic, str(number).encode(), partition=partition)
        producer.flush()


def commit(broker: KafkaBroker, group: str, topic: str, offsets: dict[int, int]) -> None:
    with ClusterConnection(plain(broker.bootstrap_servers), 20) as connection:
        connection.open()
        errors = commit_offsets(connection, group, {(topic, number): offset for number, offset in offsets.items()})
    assert set(errors.values()) == {None}


def console(broker: KafkaBroker, kind: str, topic: str, group: str, *words: str) -> subprocess.Popen[bytes]:
    """One of Kafka's own consumers, which reads from the beginning as far as that is its to decide."""
    return subprocess.Popen(
        kafka_command(
            f"org.apache.kafka.tools.consumer.{kind}",
            *("--bootstrap-server", broker.bootstrap_servers, "--topic", topic, "--group", group, *words),
        ),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def lag(samples: Samples, group: str) -> dict[tuple[str, ...], float]:
    return samples.of("kctl_consumer_lag", "topic", "partition", group=group)


def offsets_of_kafkas_tool(broker: KafkaBroker, group: str) -> dict[str, dict[tuple[str, ...], float]]:
    """By name of our metric; without the partitions that the tool shows because a member holds them."""
    rows = [row for row in kafka_tools.describe_group(broker.bootstrap_servers, group) if row.lag is not None]
    columns = {
        "kctl_consumer_committed_offset": "current_offset",
        "kctl_partition_end_offset": "log_end_offset",
        "kctl_consumer_lag": "lag",
    }
    return {
        name: {(row.topic, str(row.partition)): float(getattr(row, column)) for row in rows}
        for name, column in columns.items()
    }


def offsets_of_ours(samples: Samples, group: str) -> dict[str, dict[tuple[str, ...], float]]:
    names = ("kctl_consumer_committed_offset", "kctl_partition_end_offset", "kctl_consumer_lag")
    return {name: samples.of(name, "topic", "partition", group=group) for name in names}


def words_of(samples: Samples, name: str, label: str, group: str) -> set[str]:
    return {word for (word,), value in samples.of(name, label, group=group).items() if value == 1}


@pytest.mark.shows("a classic group's offsets, lag, state and members are as Kafka's own tool reports them")
def test_a_classic_group_is_as_kafkas_own_tool_reports_it_field_by_field(
    broker: KafkaBroker, exporter: Exporter, eventually: Eventually
) -> None:
    """Of four partitions it has committed three: one behind, one at the end, one that is empty."""
    produce(broker, "orders", {0: 10, 1: 20, 2: 30})
    commit(broker, "billing", "orders", {0: 4, 1: 20, 3: 0})
    expected = {("orders", "0"): 6, ("orders", "1"): 0, ("orders", "3"): 0}
    eventually(lambda: lag(exporter.samples(), "billing") == expected, what="its lag")

    with closing(
        KafkaConsumer(
            "orders", bootstrap_servers=broker.bootstrap_servers, group_id="billing", enable_auto_commit=False
        )
    ) as member:
        until_assigned(member)
        eventually(lambda: words_of(exporter.samples(), "kctl_group_state", "state", "billing") == {"stable"})
        samples, state = exporter.samples(), kafka_tools.describe_state(broker.bootstrap_servers, "billing")
        reported = offsets_of_kafkas_tool(broker, "billing")
        [of_tool] = kafka_tools.describe_members(broker.bootstrap_servers, "billing")
        [ours] = json.loads(exporter.get("/api/v1/groups/billing")[1])["members"]

    assert offsets_of_ours(samples, "billing") == reported
    held = tuple((topic, number) for topic, numbers in ours["assigned"].items() for number in numbers)
    assert (ours["member_id"], f"/{ours['host']}".replace("//", "/"), held) == (
        of_tool.consumer_id,
        of_tool.host,
        of_tool.assignment,
    )
    assert ours["lag"] == 6
    assert words_of(samples, "kctl_group_state", "state", "billing") == {state.state.lower()} == {"stable"}
    assert samples.of("kctl_group_members", "group", group="billing") == {("billing",): state.members}
    assert samples.of("kctl_group_lag", "group", group="billing") == {("billing",): 6}
    assert samples.of("kctl_topic_lag", "topic", group="billing") == {("orders",): 6}
    assert samples.of("kctl_group_info", "type", "coordinator", group="billing") == {("classic", "1"): 1}
    assert set(samples.of("kctl_partition_start_offset", "topic", "partition", group="billing").values()) == {0}
    assert samples.of("kctl_collect_up", "part", cluster="default") == {
        (part,): 1 for part in ("groups", "committed", "members", "offsets")
    }
    [age] = samples.of("kctl_group_stats_age_seconds", group="billing").values()
    assert 0 <= age < 5
    eventually(lambda: words_of(exporter.samples(), "kctl_group_state", "state", "billing") == {"empty"})
    assert exporter.samples().of("kctl_group_members", "group", group="billing") == {("billing",): 0}


def test_groups_of_the_newer_kinds_are_named_as_such_with_their_members_and_lag(
    broker: KafkaBroker, exporter: Exporter, eventually: Eventually
) -> None:
    """Of KIP-848, and a share group, with Kafka's own consumers."""
    topics.create_topic(broker.bootstrap_servers, "modern", 2)
    produce(broker, "modern", {0: 5, 1: 7})
    reading = console(
        broker, "ConsoleConsumer", "modern", "next", "--from-beginning", "--command-property", "group.protocol=consumer"
    )
    sharing = console(broker, "ConsoleShareConsumer", "modern", "sharers")

    def lags_of(group: str) -> dict[tuple[str, ...], float]:
        return lag(exporter.samples(), group)

    def has_shared_one() -> bool:
        """What is produced before a partition is begun is not the share group's, so another one may be needed."""
        if ("modern", "0") not in lags_of("sharers"):
            produce(broker, "modern", {0: 1})
            return False
        return lags_of("sharers")["modern", "0"] == 0

    try:
        eventually(has_shared_one, what="the share group has begun")
        eventually(lambda: lags_of("next") == {("modern", "0"): 0, ("modern", "1"): 0}, what="it has read all")
        samples = exporter.samples()
    finally:
        for consumer in (reading, sharing):
            consumer.kill()
        for consumer in (reading, sharing):
            consumer.wait()

    assert words_of(samples, "kctl_group_info", "type", "next") == {"consumer"}
    assert words_of(samples, "kctl_group_info", "type", "sharers") == {"share"}
    for group in ("next", "sharers"):
        assert words_of(samples, "kctl_group_state", "state", group) == {"stable"}
        assert samples.of("kctl_group_members", "group", group=group) == {(group,): 1}
    produce(broker, "modern", {0: 3})
    eventually(lambda: lags_of("next") == {("modern", "0"): 3, ("modern", "1"): 0}, what="lag after it was killed")
    assert offsets_of_ours(exporter.samples(), "next") == offsets_of_kafkas_tool(broker, "next")
    eventually(lambda: lags_of("sharers") == lags_of_a_share_group(broker, "sharers"), what="the share group's lag")
    assert lags_of("sharers")["modern", "0"] >= 3


def lags_of_a_share_group(broker: KafkaBroker, group: str) -> dict[tuple[str, ...], float]:
    words = ("--bootstrap-server", broker.bootstrap_servers, "--describe", "--group", group)
    command = kafka_command("org.apache.kafka.tools.consumer.group.ShareGroupCommand", *words)
    reported = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    rows = re.findall(rf"^{group} +(\S+) +(\d+) +\d+ +(\d+)", reported, re.MULTILINE)
    return {(topic, partition): float(count) for topic, partition, count in rows}


def test_a_streams_group_is_named_as_such_with_its_members_and_lag(
    broker: KafkaBroker, exporter: Exporter, eventually: Eventually
) -> None:
    topics.create_topic(broker.bootstrap_servers, "clicks", 1)
    produce(broker, "clicks", {0: 5})
    commit(broker, "counting", "clicks", {0: 2})
    eventually(lambda: lag(exporter.samples(), "counting") == {("clicks", "0"): 3}, what="its offsets")

    with streams_member(broker.bootstrap_servers, "streaming", "clicks"):
        eventually(lambda: exporter.samples().of("kctl_group_members", "group", group="streaming"), what="its members")
        samples = exporter.samples()

    assert words_of(samples, "kctl_group_info", "type", "streaming") == {"streams"}
    assert samples.of("kctl_group_members", "group", group="streaming") == {("streaming",): 1}
    assert len(words_of(samples, "kctl_group_state", "state", "streaming")) == 1
    commit(broker, "streaming", "clicks", {0: 1})
    eventually(lambda: lag(exporter.samples(), "streaming") == {("clicks", "0"): 4}, what="its lag")
    assert offsets_of_ours(exporter.samples(), "streaming") == {
        "kctl_consumer_committed_offset": {("clicks", "0"): 1},
        "kctl_partition_end_offset": {("clicks", "0"): 5},
        "kctl_consumer_lag": {("clicks", "0"): 4},
    }


@pytest.mark.shows("an offset above the end is lag 0 and ahead; one below the start is lag and lost messages")
def test_an_offset_above_the_end_and_one_below_the_start_are_conditions_of_their_own(
    broker: KafkaBroker, exporter: Exporter, eventually: Eventually
) -> None:
    topics.create_topic(broker.bootstrap_servers, "cut", 2)
    produce(broker, "cut", {0: 10, 1: 10})
    commit(broker, "odd-places", "cut", {0: 25, 1: 2})
    topics.delete_records(broker.bootstrap_servers, "cut", {1: 6})

    eventually(lambda: exporter.samples().of("kctl_consumer_lost_messages", group="odd-places"), what="what is lost")
    samples = exporter.samples()

    def of(name: str) -> dict[tuple[str, ...], float]:
        return samples.of(name, "partition", group="odd-places")

    assert of("kctl_consumer_ahead") == {("0",): 15}
    assert of("kctl_consumer_lost_messages") == {("1",): 4}
    assert of("kctl_consumer_lag") == {("0",): 0, ("1",): 8}
    reported = offsets_of_kafkas_tool(broker, "odd-places")["kctl_consumer_lag"]
    assert reported["cut", "1"] == 8
    assert samples.of("kctl_group_lag", group="odd-places") == {(): 8}


@pytest.mark.shows("an open transaction is lag, but not for the groups of `exporter.read_committed`")
def test_an_open_transaction_is_no_lag_for_a_group_that_reads_committed_records(
    broker: KafkaBroker, exporter: Exporter, eventually: Eventually
) -> None:
    topics.create_topic(broker.bootstrap_servers, "paid", 1)
    produce(broker, "paid", {0: 4})
    commit(broker, "committed-only", "paid", {0: 4})
    commit(broker, "everything", "paid", {0: 4})

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
        producer.commit_transaction()

    eventually(lambda: lags() == ({(): 4}, {(): 4}), what="its messages and its marker")


@pytest.mark.shows("partitions added, topics deleted or recreated, groups deleted: right with the next cycle")
def test_partitions_that_are_added_topics_that_are_recreated_and_what_is_deleted_show_in_the_next_cycle(
    broker: KafkaBroker, exporter: Exporter, eventually: Eventually
) -> None:
    servers = broker.bootstrap_servers
    topics.create_topic(servers, "changing", 1)
    topics.create_topic(servers, "staying", 1)
    produce(broker, "changing", {0: 10})
    commit(broker, "followers", "changing", {0: 4})
    commit(broker, "followers", "staying", {0: 0})
    eventually(
        lambda: lag(exporter.samples(), "followers") == {("changing", "0"): 6, ("staying", "0"): 0}, what="its lag"
    )

    topics.add_partitions(servers, "changing", 2)
    produce(broker, "changing", {1: 5})
    commit(broker, "followers", "changing", {1: 1})
    eventually(lambda: lag(exporter.samples(), "followers").get(("changing", "1")) == 4, what="the added partition")

    topics.delete_topic(servers, "changing")
    eventually(lambda: lag(exporter.samples(), "followers") == {("staying", "0"): 0}, what="the deleted topic is gone")
    assert "changing" not in exporter.samples().page

    topics.create_topic(servers, "changing", 1)
    produce(broker, "changing", {0: 3})
    commit(broker, "followers", "changing", {0: 1})
    eventually(lambda: lag(exporter.samples(), "followers").get(("changing", "0")) == 2, what="the recreated topic")

    delete_group(broker, "followers")
    eventually(lambda: 'group="followers"' not in exporter.samples().page, what="the deleted group is gone")


def delete_group(broker: KafkaBroker, group: str) -> None:
    with KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.delete_groups([group])


@pytest.mark.shows("group ids with quotes, backslashes, newlines, Unicode")
def test_a_group_id_may_hold_quotes_backslashes_newlines_and_unicode(
    broker: KafkaBroker, exporter: Exporter, eventually: Eventually
) -> None:
    names = ['a "quoted" one', "back\\slash\\", "two\nlines", "größe-消费者-🚚", " "]
    produce(broker, "orders", {3: 1})
    for name in names:
        commit(broker, name, "orders", {3: 0})

    eventually(lambda: all(lag(exporter.samples(), name) for name in names), what="all of them")
    for name in names:
        assert lag(exporter.samples(), name).keys() == {("orders", "3")}, name
        assert words_of(exporter.samples(), "kctl_group_state", "state", name) == {"empty"}


@pytest.mark.shows("scrapes at once share one page and ask no broker")
def test_many_scrapes_at_once_ask_the_brokers_nothing_and_get_one_page(exporter: Exporter) -> None:
    with ThreadPoolExecutor(8) as pool:
        pages = [Samples(page) for status, page in pool.map(lambda _: exporter.get("/metrics"), range(16))]

    taken = {tuple(page.of("kctl_cluster_collect_timestamp_seconds").values()) for page in pages}
    assert len({page.page for page in pages}) == len(taken) < 16


@pytest.mark.shows("`exporter.all_groups`: every other group of its cluster is on the master's own page")
def test_a_master_has_all_other_groups_of_its_cluster_beside_its_own(
    broker: KafkaBroker, master: Callable[..., Any], eventually: Eventually
) -> None:
    commit(broker, "a-foreign-one", "orders", {3: 0})

    fleet = master(exporter={"all_groups": True, "interval_seconds": 0.2, "groups_except": ["billing"]})
    own = fleet.config.parent.name

    def samples() -> Samples:
        with urllib.request.urlopen(fleet.about["http_url"] + "/metrics", timeout=20) as response:
            return Samples(response.read().decode())

    eventually(lambda: lag(samples(), "a-foreign-one"), what="the other group")
    found = samples()
    assert found.of("kctl_group_members", "cluster", group="a-foreign-one") == {("default",): 0}
    assert len(lag(found, own)) == 4
    assert lag(found, "billing") == {}
    assert (own,) not in found.of("kctl_group_info", "group")
    assert fleet.stop() == 0


def test_kctl_groups_lists_what_the_exporter_has_seen(
    broker: KafkaBroker, exporter: Exporter, eventually: Eventually
) -> None:
    topics.create_topic(broker.bootstrap_servers, "listed", 1)
    produce(broker, "listed", {0: 7})
    commit(broker, "far-behind", "listed", {0: 0})
    eventually(lambda: lag(exporter.samples(), "far-behind"), what="its lag")

    def kctl(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "kctl", "groups", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    listed = kctl("--url", exporter.url, "--sort", "group")
    document = json.loads(kctl("--url", exporter.url, "-o", "json").stdout)
    chosen = kctl("--url", exporter.url, "far-*", "-o", "json")
    nobody = kctl("--url", f"http://127.0.0.1:{two_free_ports()[0]}")

    assert listed.returncode == 0, listed.stderr
    heading, *lines = listed.stdout.splitlines()
    assert heading.split() == ["group", "type", "state", "members", "lag", "behind", "growth/s", "status", "reason"]
    [line] = [line for line in lines if line.startswith("far-behind ")]
    assert line.split()[1:5] == ["classic", "empty", "0", "7"]
    assert next(row["lag"] for row in document["rows"] if row["group"] == "far-behind") == 7
    assert [row["group"] for row in json.loads(chosen.stdout)["rows"]] == ["far-behind"]
    assert (nobody.returncode, nobody.stderr.startswith("kctl: nothing answers at http://127.0.0.1:")) == (5, True)


def test_kctl_groups_watches_those_of_a_real_broker_on_a_terminal_of_80_columns(
    broker: KafkaBroker, exporter: Exporter, eventually: Eventually
) -> None:
    topics.create_topic(broker.bootstrap_servers, "watched", 1)
    produce(broker, "watched", {0: 7})
    commit(broker, "top-most", "watched", {0: 0})
    eventually(lambda: lag(exporter.samples(), "top-most"), what="its lag")

    words = ("groups", "top-m*", "--url", exporter.url, "--watch", "0.2")
    with Terminal(*words, columns=80, rows=24) as terminal:
        terminal.read_until(r"1 group · .*top-most +7 ")
        produce(broker, "watched", {0: 1})
        seen = terminal.read_until(r"top-most +8 .*\x1b\[J")
        assert terminal.interrupt() == 0

    assert max(len(line) for frame in seen.split("\x1b[H") for line in plain_lines(frame)) <= 80


@pytest.mark.shows("requests of a cycle: one a broker, two a coordinator, two a leader; Metadata when a topic is new")
def test_a_cycle_asks_each_broker_once_for_each_part_and_for_metadata_only_when_a_topic_is_new(
    broker: KafkaBroker,
) -> None:
    topics.create_topic(broker.bootstrap_servers, "counted", 2)
    commit(broker, "counted-1", "counted", {0: 0})
    commit(broker, "counted-2", "counted", {1: 0})
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
        with closing(
            KafkaConsumer("counted", bootstrap_servers=broker.bootstrap_servers, group_id="counted-1")
        ) as member:
            until_assigned(member)
            with_members, asked_with_members = reader.read(), dict(reader.asked)
        commit(broker, "counted-2", "orders", {0: 0})
        filtered = reader.read()

    of_empty = {"ListGroups": 1, "OffsetFetch": 1, "ListOffsets": 2}
    assert asked_first == of_empty | {"Metadata": 1}
    assert again == of_empty
    assert asked_with_members == of_empty | {"DescribeGroups": 1}
    assert (first.members, with_members.members["counted-1"]) == ({"counted-1": 0, "counted-2": 0}, 1)
    assert filtered.committed["counted-2"].topics == (("counted", (1,)),)
    assert first.errors == with_members.errors == filtered.errors == {}
