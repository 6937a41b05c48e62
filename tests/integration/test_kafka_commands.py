"""Every command of `kctl kafka` on a real broker shows the same as Kafka's own tools on the same state."""

import json
import os
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition

from tests.command_lines import KCTL, Kctl, Ran
from tests.conftest import eventually
from tests.consumers import member
from tests.group_members import alter_share_offsets, consumer_member, share_member
from tests.servers import kafka_tools, topics
from tests.servers.kafka_broker import KafkaBroker, kafka_command
from tests.terminals import on_a_terminal

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
GROUP = "billing"
BASE = int(time.time()) * 1000 - 3_600_000  # of each partition's first message, a millisecond before the next


@pytest.fixture(scope="module", autouse=True)
def some_messages(broker: KafkaBroker) -> None:
    topics.produce(broker.bootstrap_servers, "orders", {0: 10, 1: 20, 2: 30}, BASE)
    topics.commit(broker.bootstrap_servers, GROUP, "orders", {0: 4, 1: 20})


@pytest.fixture
def reader(broker: KafkaBroker) -> Iterator[KafkaConsumer]:
    with member(broker.bootstrap_servers, "readers", "orders", client_id="reader") as consumer:
        yield consumer


@pytest.mark.shows("groups, members, lag, topics, offsets and resets match Kafka's own tools")
def test_lag_and_members_are_those_of_kafkas_tool(broker: KafkaBroker, kctl: Kctl, reader: KafkaConsumer) -> None:
    reader.commit({TopicPartition("orders", 2): OffsetAndMetadata(25, "", -1)})
    reported = kafka_tools.describe_group(broker.bootstrap_servers, "readers")

    ours = kctl("lag", "-g", "readers", "-o", "json").rows
    described = kctl("group", "readers", "-o", "json").document["groups"]
    as_table = kctl("group", "readers").out

    assert [
        (r["topic"], r["partition"], r["current_offset"], r["log_end_offset"], r["lag"], r["consumer_id"], r["host"])
        for r in ours
    ] == [
        (r.topic, r.partition, r.current_offset, r.log_end_offset, r.lag, r.consumer_id, r.host and r.host[1:])
        for r in reported
    ]
    assert [(r["partition"], r["lag"]) for r in ours] == [(0, None), (1, None), (2, 5), (3, None)]
    [group] = described
    about = ("state", "type", "protocol", "assignor")
    assert tuple(group[name] for name in about) == ("Stable", "classic", "consumer", "range")
    [only] = group["members"]
    assert only["member_id"] == reader.group_metadata().member_id
    assert (only["client_id"], only["host"], only["assigned"]) == ("reader", "127.0.0.1", {"orders": [0, 1, 2, 3]})
    assert "0-3" in as_table


def test_a_group_of_the_new_protocol_has_its_members_and_is_never_dead(broker: KafkaBroker, kctl: Kctl) -> None:
    def described() -> Any:
        ran = kctl("group", "modern", "-o", "json")
        groups = ran.document["groups"] if ran.code == 0 else []
        return groups and groups[0]["members"] and groups[0]["members"][0]["assigned"] and groups[0]

    with consumer_member(broker.bootstrap_servers, "modern", "orders"):
        group = eventually(described, 60, "the group has a member")
        listed = {row["group"]: row for row in kctl("groups", "-o", "json").rows}
        rows = kctl("lag", "-g", "modern", "-o", "json").rows
        refused = kctl("reset-offsets", "-g", "modern", "-t", "orders", "--to", "earliest")

    assert (group["state"], group["type"], group["assignor"]) == ("Stable", "consumer", "uniform")
    assert group["members"][0]["assigned"] == {"orders": [0, 1, 2, 3]}
    assert group["members"][0]["client_id"] == "kctl-tests"
    assert (listed["modern"]["type"], listed[GROUP]["type"]) == ("consumer", "classic")
    assert [row["consumer_id"] for row in rows] == [group["members"][0]["member_id"]] * 4
    assert refused.code == 24
    assert group["members"][0]["member_id"] in refused.err


@pytest.mark.shows("share groups and KIP-848 groups are described as such; their lag matches Kafka's own tool")
def test_members_and_lag_of_a_share_group_are_those_of_kafkas_tool(broker: KafkaBroker, kctl: Kctl) -> None:
    """KIP-932: a share group commits nothing, and only the broker knows what is done after a partition's start."""
    servers = broker.bootstrap_servers
    topics.create_topic(servers, "commons", 2)

    def lags(*words: str) -> dict[int, tuple[int | None, int | None]]:
        rows = kctl("lag", "-g", "sharers", *words, "-o", "json").rows
        assert {(row["topic"], row["consumer_id"]) for row in rows} <= {("commons", None)}
        return {row["partition"]: (row["current_offset"], row["lag"]) for row in rows}

    with share_member(servers, "sharers", "commons", is_assigned=True):
        [group] = kctl("group", "sharers", "-o", "json").document["groups"]
        listed = {row["group"]: row for row in kctl("groups", "-o", "json").rows}
    topics.produce(servers, "commons", {1: 3})
    alter_share_offsets(servers, "sharers", "commons", {1: 1})

    eventually(lambda: lags()[1] == (1, 2), what="it is behind")
    reported = kafka_tools.describe_all(servers, "share", "sharers").partitions
    assert lags() == lags("-t", "commons") == {row.partition: (row.current_offset, row.lag) for row in reported}
    assert (group["state"], group["type"]) == ("Stable", "share")
    assert group["members"][0]["assigned"] == {"commons": [0, 1]}
    assert listed["sharers"]["type"] == "share"


def test_topics_and_offsets_are_those_of_kafkas_own_tools(broker: KafkaBroker, kctl: Kctl) -> None:
    servers = broker.bootstrap_servers
    topics.create_topic(servers, "kept", 2, {"retention.ms": "60000", "max.message.bytes": "2000"})
    described = kafka_tools.run(servers, "--describe", tool=kafka_tools.TOPICS)
    latest = kafka_tools.run(servers, "--topic", "orders", tool=kafka_tools.OFFSETS)

    listed = {row["topic"]: row for row in kctl("topics", "-o", "json").rows}
    kept = kctl("topic", "kept", "-o", "json").document
    ends = kctl("list-offsets", "-t", "orders", "-o", "json").rows

    reported = {
        m[1]: (m[2], int(m[3]), m[4])
        for m in re.finditer(
            r"Topic: (\S+)\s+TopicId: (\S+)\s+PartitionCount: (\d+)\s+ReplicationFactor: 1\s+Configs: (\S*)", described
        )
    }
    assert listed.keys() == reported.keys()
    assert all(listed[name]["partitions"] == count for name, (_, count, _) in reported.items())
    settings = {s["setting"]: s["value"] for s in kept["settings"] if s["set_by"] == "topic"}
    assert {f"{name}={value}" for name, value in settings.items()} <= set(reported["kept"][2].split(","))
    assert settings == {"retention.ms": "60000", "max.message.bytes": "2000"}
    assert [(p["partition"], p["leader"], p["replicas"], p["isr"]) for p in kept["partitions"]] == [
        (0, 1, [1], [1]),
        (1, 1, [1], [1]),
    ]
    assert [f"orders:{row['partition']}:{row['offset']}" for row in ends] == latest.split()


@pytest.mark.parametrize(
    ("when", "offsets"),
    [
        ("earliest", [0, 0, 0, 0]),
        ("latest", [10, 20, 30, 0]),
        ("max-timestamp", [9, 19, 29, None]),
        (str(BASE + 15), [None, 15, 15, None]),
        (datetime.fromtimestamp(BASE / 1000 + 0.005, UTC).isoformat(), [5, 5, 5, None]),
    ],
    ids=["earliest", "latest", "max-timestamp", "milliseconds", "a date"],
)
def test_an_offset_is_found_by_its_name_or_its_time(kctl: Kctl, when: str, offsets: list[int | None]) -> None:
    assert [row["offset"] for row in kctl("list-offsets", "-t", "orders", "--time", when, "-o", "json").rows] == offsets


def test_a_reset_is_planned_done_and_read_by_kafkas_own_tool(broker: KafkaBroker, kctl: Kctl) -> None:
    topics.commit(broker.bootstrap_servers, "moved", "orders", {0: 4, 1: 20})
    words = ("reset-offsets", "-g", "moved", "-o", "json", "-t")

    planned = kctl(*words, "orders:0,1", "--to", "earliest", "--dry-run")
    before = kctl("offset-fetch", "-g", "moved", "-o", "json").rows
    shifted = kctl(*words, "orders:0,1", "--to", "shift-by", "-3", "--execute")
    beyond = kctl(*words, "orders:2", "--to", "1000", "--execute")
    by_time = kctl(*words, "orders:3,2", "--to", f"@{BASE + 11}", "--execute")
    one = kctl(*words, "orders:0", "--to", "7", "--execute")

    def changes(ran: Ran) -> list[tuple[Any, ...]]:
        assert ran.code == 0, ran.err
        return [(row["partition"], row["old"], row["new"], row["difference"]) for row in ran.rows]

    assert changes(planned) == [(0, 4, 0, -4), (1, 20, 0, -20)]
    assert "nothing was changed" in planned.err
    assert [(row["partition"], row["committed_offset"]) for row in before] == [(0, 4), (1, 20)]
    assert changes(shifted) == [(0, 4, 1, -3), (1, 20, 17, -3)]
    assert changes(beyond) == [(2, None, 30, None)]
    assert changes(by_time) == [(2, 30, 11, -19), (3, None, 0, None)]
    assert changes(one) == [(0, 1, 7, 6)]
    reported = kafka_tools.describe_group(broker.bootstrap_servers, "moved")
    assert [(row.partition, row.current_offset) for row in reported] == [(0, 7), (1, 17), (2, 11), (3, 0)]
    *_, last = map(json.loads, Path(os.environ["XDG_STATE_HOME"], "kctl", "audit.jsonl").read_text().splitlines())
    named = {"operation": "kafka reset-offsets", "state": "done", "text": "1 offset set"}
    assert (last["params"]["offsets"], last | named) == ([["orders", 0, 1, 7]], last)


@pytest.mark.shows("a group with live members is not reset, and the error names them")
def test_a_group_with_live_members_is_neither_reset_nor_deleted(kctl: Kctl, reader: KafkaConsumer) -> None:
    reset = kctl("reset-offsets", "-g", "readers", "-t", "orders", "--to", "latest")
    deleted = kctl("delete-group", "readers", "--execute")

    for ran in (reset, deleted):
        assert (ran.code, ran.out) == (24, "")
        assert f"{reader.group_metadata().member_id} (reader at 127.0.0.1); stop them first" in ran.err


def test_what_is_produced_is_consumed_byte_for_byte(broker: KafkaBroker, kctl: Kctl, tmp_path: Any) -> None:
    topics.create_topic(broker.bootstrap_servers, "copies", 3)
    lines = [b"", "grüße \u2603 \U0001f680".encode(), bytes(range(128, 256)), b"x" * 100_000, b"last"]
    file = tmp_path / "lines"
    file.write_bytes(b"\n".join(lines) + b"\n")

    for number, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
        ran = kctl("produce", "-t", "copies", "-p", "1", "-f", str(file), "--codec", codec, "-o", "json")
        assert (ran.code, ran.document["messages"]) == (0, 5), ran.err
        assert (ran.rows[0]["partition"], ran.rows[0]["messages"]) == (1, 5)
        assert (ran.rows[0]["first_offset"], ran.rows[0]["last_offset"]) == (number * 5, number * 5 + 4)
    by_java = kafka_command(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", broker.bootstrap_servers, "--topic", "copies", "--from-beginning"),
        *("--max-messages", "25", "--timeout-ms", "20000"),
    )
    for command in ([*KCTL, "kafka", "consume", "-b", broker.bootstrap_servers, "-t", "copies"], by_java):
        assert subprocess.run(command, capture_output=True, check=True).stdout == file.read_bytes() * 5


def test_a_message_keeps_key_headers_and_null_and_its_sizes_are_reported(broker: KafkaBroker, kctl: Kctl) -> None:
    topics.create_topic(broker.bootstrap_servers, "letters", 8)
    words = ("produce", "-t", "letters", "-o", "json")

    [first] = kctl(*words, "-k", "17", "--header", "a=b", "--header", "c=", "y" * 2000, "--codec", "zstd").rows
    [tombstone] = kctl(*words, "-k", "17", "--null").rows
    [unasked] = kctl(*words, "--acks", "0", "-p", "5", "z").rows
    found = kctl("consume", "-t", "letters", "-p", str(first["partition"]), "--format", "json").out.splitlines()

    assert tombstone["partition"] == first["partition"]
    assert (first["offset"], tombstone["offset"], unasked["offset"]) == (0, 1, None)
    assert first["bytes"] > 2000 > first["compressed_bytes"]
    one, two = map(json.loads, found)
    assert (one["key"], len(one["value"])) == ("17", 2000)
    assert one["headers"] == [{"key": "a", "value": "b"}, {"key": "c", "value": ""}]
    assert (two["key"], two["value"], two["timestamp"]) == ("17", None, tombstone["timestamp"])


@pytest.mark.shows("a key selects the partition of the Java client; each codec is read byte for byte")
def test_a_key_goes_where_the_java_client_puts_it(broker: KafkaBroker, kctl: Kctl) -> None:
    topics.create_topic(broker.bootstrap_servers, "hashed", 16)
    keys = ["", "a", "17", "Ünïcode", "a much longer key than the others"]
    subprocess.run(
        kafka_command(
            "org.apache.kafka.tools.ConsoleProducer",
            *("--bootstrap-server", broker.bootstrap_servers, "--topic", "hashed"),
            *("--reader-property", "parse.key=true", "--reader-property", "key.separator=|"),
        ),
        input="".join(f"{key}|java\n" for key in keys).encode(),
        check=True,
        capture_output=True,
    )
    for key in keys:
        assert kctl("produce", "-t", "hashed", "-k", key, "ours").code == 0

    found: dict[str, set[int]] = {}
    for line in map(json.loads, kctl("consume", "-t", "hashed", "--format", "json").out.splitlines()):
        found.setdefault(line["key"], set()).add(line["partition"])
    assert found.keys() == set(keys)
    assert all(len(partitions) == 1 for partitions in found.values())


def test_the_last_messages_of_each_partition_are_consumed(broker: KafkaBroker, kctl: Kctl) -> None:
    topics.create_topic(broker.bootstrap_servers, "tail", 2)
    topics.produce(broker.bootstrap_servers, "tail", {0: 5, 1: 2})

    last = kctl("consume", "-t", "tail", "--from", "-3")
    none = kctl("consume", "-t", "tail", "--from", "-0")

    assert sorted(last.out.splitlines()) == ["0", "1", "2", "3", "4"]
    assert none.out == ""


@pytest.mark.shows("`read_committed` shows no aborted records, and reaches the end")
def test_aborted_messages_are_not_shown_and_the_end_is_reached(broker: KafkaBroker, kctl: Kctl) -> None:
    topics.create_topic(broker.bootstrap_servers, "deals", 1)
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, transactional_id="deals")
    producer.init_transactions()
    for word, is_kept in (("kept", True), ("dropped", False)):
        producer.begin_transaction()
        producer.send("deals", word.encode())
        producer.flush()
        producer.commit_transaction() if is_kept else producer.abort_transaction()
    producer.close()

    words = ("consume", "-t", "deals")
    assert kctl(*words).out.split() == ["kept", "dropped"]
    assert kctl(*words, "--read-committed").out.split() == ["kept"]
    [end] = kctl("list-offsets", "-t", "deals", "--read-committed", "-o", "json").rows
    assert end["offset"] == 4


BAD = b"\x1b]0;owned\x07\x1b[2J\xc2\x9b31m\xe2\x80\xae\xff\r"


def test_message_bytes_cannot_steer_the_terminal_and_reach_a_pipe_unchanged(broker: KafkaBroker) -> None:
    topics.create_topic(broker.bootstrap_servers, "hostile", 1)
    with closing(KafkaProducer(bootstrap_servers=broker.bootstrap_servers)) as producer:
        producer.send("hostile", BAD, key=BAD).get(60)
    words = ["kafka", "consume", "-b", broker.bootstrap_servers, "-t", "hostile", "--format"]

    assert BAD in subprocess.run([*KCTL, *words, "value"], capture_output=True, check=True).stdout
    for form in ("value", "line", "json"):
        seen = on_a_terminal(*words, form, code=0)
        assert seen.decode().replace("\r\n", "").isprintable(), seen
        assert b"owned" in seen or form == "json"
