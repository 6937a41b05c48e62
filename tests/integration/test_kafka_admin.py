"""Topics and groups created, altered and deleted with `kctl kafka` on a real broker, as Kafka's own tools see it."""

import json
import os
import pty
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kctl.cli.entry import run
from kctl.errors import KctlError
from tests.command_lines import Kctl, Ran, run_process
from tests.servers import kafka_tools, topics
from tests.servers.kafka_broker import KafkaBroker

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")


@pytest.fixture
def at_terminal(broker: KafkaBroker) -> Kctl:
    def run_words(*words: str, answer: str) -> Ran:
        ours, theirs = pty.openpty()
        try:
            os.write(ours, answer.encode())
            done = run_process("kafka", words[0], "-b", broker.bootstrap_servers, *words[1:], stdin=theirs)
        finally:
            os.close(ours)
            os.close(theirs)
        return Ran(done.returncode, done.stdout, done.stderr)

    return run_words


def described(broker: KafkaBroker, topic: str) -> str:
    return kafka_tools.run(broker.bootstrap_servers, "--describe", "--topic", topic, tool=kafka_tools.TOPICS)


def audit_lines() -> list[dict[str, Any]]:
    path = Path(os.environ["XDG_STATE_HOME"], "kctl", "audit.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.shows("Kafka's own tools confirm created, altered and deleted topics and groups")
def test_a_topic_is_created_as_it_was_ordered_and_kafkas_own_tool_sees_it(broker: KafkaBroker, kctl: Kctl) -> None:
    made = kctl("create-topic", "made", "-p", "3", "-r", "1", "--set", "retention.ms=60000", "-o", "json").document
    [row] = made["rows"]
    by_default = kctl("create-topic", "plain", "-o", "json").document["rows"][0]

    assert (row["topic"], row["partitions"], row["replicas"], made["executed"]) == ("made", 3, 1, True)
    reported = described(broker, "made")
    assert row["topic_id"].replace("-", "") != ""
    assert re.search(r"PartitionCount: 3\s+ReplicationFactor: 1\s+Configs: .*retention\.ms=60000", reported)
    assert by_default["partitions"] >= 1
    assert [(line["operation"], line["state"]) for line in audit_lines()] == [
        ("kafka create-topic", "running"),
        ("kafka create-topic", "done"),
    ] * 2


@pytest.mark.shows("resets and deletions are previewed, need a confirmation or `--execute`, and are logged")
def test_a_topic_is_deleted_only_when_confirmed(broker: KafkaBroker, kctl: Kctl, at_terminal: Kctl) -> None:
    topics.create_topic(broker.bootstrap_servers, "doomed", 2)
    kctl("produce", "-t", "doomed", "--repeat", "3", "hello")

    shown = kctl("delete-topic", "doomed", "-o", "json")
    dry = kctl("delete-topic", "doomed", "--dry-run")
    declined = at_terminal("delete-topic", "doomed", answer="n\n")
    assert topics.has_topic(broker.bootstrap_servers, "doomed")
    assert audit_lines() == []
    deleted = at_terminal("delete-topic", "doomed", answer="y\n")
    gone = kctl("delete-topic", "doomed", "--execute")
    both = kctl("delete-topic", "doomed", "--execute", "--dry-run")

    assert (shown.document["rows"][0]["messages"], shown.document["executed"]) == (3, False)
    assert (shown.code, "nothing was changed: add --execute to do it" in shown.err) == (2, True)
    assert (dry.code, "nothing was changed: --dry-run" in dry.err) == (0, True)
    assert (declined.code, "nothing was changed" in declined.err) == (1, True)
    assert (deleted.code, "Delete topic doomed and all its messages? [y/N]" in deleted.err) == (0, True)
    assert (gone.code, "UNKNOWN_TOPIC_OR_PARTITION" in gone.err) == (11, True)
    assert (both.code, "contradict each other" in both.err) == (2, True)
    assert [(line["state"], line["text"]) for line in audit_lines()] == [
        ("running", ""),
        ("done", "topic doomed deleted"),
    ]
    assert audit_lines()[0]["params"]["messages"] == 3


def test_a_topic_is_altered_in_its_partitions_and_settings(broker: KafkaBroker, kctl: Kctl) -> None:
    topics.create_topic(broker.bootstrap_servers, "growing", 2, {"cleanup.policy": "compact"})
    words = ("alter-topic", "growing", "-p", "4", "--set", "retention.ms=60000", "--unset", "cleanup.policy")

    shown = kctl(*words, "-o", "json").document
    before = described(broker, "growing")
    done = kctl(*words, "-o", "json", "--yes").document
    after = described(broker, "growing")

    rows = [
        {"setting": "partitions", "old": 2, "new": 4},
        {"setting": "retention.ms", "old": "604800000", "new": "60000"},
        {"setting": "cleanup.policy", "old": "compact", "new": "(default)"},
    ]
    assert (shown["rows"], shown["executed"]) == (rows, False)
    assert (done["rows"], done["executed"]) == (rows, True)
    assert "PartitionCount: 2" in before
    assert "cleanup.policy=compact" in before
    assert "PartitionCount: 4" in after
    assert "retention.ms=60000" in after
    assert "cleanup.policy" not in after


@pytest.fixture(scope="module")
def fixed(broker: KafkaBroker) -> str:
    topics.create_topic(broker.bootstrap_servers, "fixed", 2)
    topics.commit(broker.bootstrap_servers, "someone", "orders", {0: 0})  # creates Kafka's own topic of offsets
    return "fixed"


@pytest.mark.parametrize("option", ["--execute", "--dry-run"])
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("create-topic orders", "topic orders: TOPIC_ALREADY_EXISTS"),
        ("create-topic many -r 3", "topic many: INVALID_REPLICATION_FACTOR"),
        ("create-topic odd --set retention.ms=soon", "topic odd: INVALID_CONFIG"),
        ("alter-topic fixed -p 2", "has 2 partitions: their number can only grow"),
        ("alter-topic fixed --set retention.msec=1", "no setting `retention.msec`; the nearest is `retention.ms`"),
        ("alter-topic fixed -p 3 --set retention.ms=soon", "INVALID_CONFIG"),
        ("alter-topic fixed --set a=1 --unset a", "contradict each other"),
        ("alter-topic fixed", "name what to alter"),
        ("delete-topic __consumer_offsets", "is internal to Kafka"),
    ],
)
def test_what_is_impossible_is_rejected_before_anything_changes(
    kctl: Kctl, fixed: str, words: str, expected: str, option: str
) -> None:
    command, *more = words.split()

    ran = kctl(command, *more, *([] if command == "create-topic" and option == "--execute" else [option]))

    assert ran.code in (1, 2, 11)
    assert expected in ran.err
    assert "defect" not in ran.err
    if command != "create-topic":
        assert len(kctl("topic", fixed, "-o", "json").document["partitions"]) == 2
        assert audit_lines() == []


def test_a_group_is_deleted_with_what_it_has_committed(broker: KafkaBroker, kctl: Kctl) -> None:
    topics.commit(broker.bootstrap_servers, "leaving", "orders", {0: 0, 1: 0})

    shown = kctl("delete-group", "leaving", "-o", "json").document
    assert len(kafka_tools.describe_group(broker.bootstrap_servers, "leaving")) == 2
    kctl("delete-group", "leaving", "-y")
    missing = kctl("delete-group", "leaving", "-y")

    assert [(row["partition"], row["committed_offset"]) for row in shown["rows"]] == [(0, 0), (1, 0)]
    assert missing.code == 19
    with pytest.raises(KctlError):
        kafka_tools.describe_group(broker.bootstrap_servers, "leaving")
    assert audit_lines()[0]["params"]["offsets"] == [["orders", 0, 0], ["orders", 1, 0]]


def test_changes_are_operations(broker: KafkaBroker, config_file: Callable[..., Path]) -> None:
    topics.commit(broker.bootstrap_servers, "billing", "orders", {0: 0})
    config = config_file()

    assert run(["kafka", "delete-group", "billing", "--execute", "-c", str(config)], os.environ) == 0

    lines = (config.parent / "logs" / "operations.jsonl").read_text().splitlines()
    assert [json.loads(line)["state"] for line in lines] == ["running", "done"]
    assert audit_lines() == []
