"""While a broker is dead or hangs, every view shows the age of its offsets, and none is complete."""

from __future__ import annotations

import json
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kctl.kafka.client.access import plain
from kctl.kafka.client.connection import ClusterConnection
from kctl.kafka.offsets import commit
from tests.conftest import eventually
from tests.integration.conftest import Master
from tests.processes import stopped
from tests.servers import topics
from tests.servers.kafka_broker import KafkaBroker


@pytest.fixture
def own_broker(short_dir: Path) -> Iterator[KafkaBroker]:
    """The stand-in workers have two of its three partitions."""
    with KafkaBroker(short_dir / "broker") as running:
        topics.create_topic(running.bootstrap_servers, "orders", 3)
        yield running


@pytest.fixture
def fleet(master: Callable[..., Any], own_broker: KafkaBroker) -> Any:
    """The group has also committed for the unread partition."""
    one = master(kafka={"bootstrap_servers": own_broker.bootstrap_servers})
    with ClusterConnection(plain(own_broker.bootstrap_servers), 20) as connection:
        connection.open()
        commit(connection, one.config.parent.name, {("orders", 2): 0})
    eventually(lambda: one.ask("kafka_lag").complete)
    return one


def shows_its_age(fleet: Master, words: tuple[str, ...]) -> None:
    ran: subprocess.CompletedProcess[str]

    def stale_with_exit_code_3() -> bool:
        nonlocal ran
        ran = fleet.kctl(*words)
        return ran.returncode == 3 and "s old" in ran.stderr

    try:
        eventually(stale_with_exit_code_3, 30, what=f"{' '.join(words)} shows how old its offsets are")
    except AssertionError as error:
        error.add_note(f"exit code {ran.returncode}\n{ran.stdout}{ran.stderr}")
        raise


def fetched(fleet: Master, path: str) -> Any:
    with urllib.request.urlopen(f"{fleet.about['http_url']}/api/v1/{path}", timeout=60) as response:
        return json.load(response)


def stale(answer: dict[str, Any]) -> list[str]:
    return [each["message"] for each in answer["failed"] if (each["from"], each["code"]) == ("brokers", "stale")]


ASKED = ("rpc", "kafka_lag", "--fail-above", "1000")
VIEWS: tuple[tuple[str, ...], ...] = (("rpc", "offset_checker"), ("rpc", "metadata_topics"))


def is_well(fleet: Master) -> bool:
    return fleet.kctl(*ASKED).returncode == 0 and fleet.kctl("status").returncode == 0


def every_view_shows_its_age(fleet: Master) -> None:
    for words in (ASKED, *VIEWS):  # each is stale 5 s after the last answer it is based on
        shows_its_age(fleet, words)
    verdict = eventually(lambda: (ran := fleet.kctl("status")).returncode == 1 and ran.stdout)
    assert "no Kafka broker has answered since 2" in verdict.splitlines()[0]
    for words in [*VIEWS, ASKED, ("rpc", "member_leader")]:
        answer = json.loads(fleet.kctl(*words, "-o", "json").stdout)
        assert (answer["complete"], len(stale(answer))) == (False, 1), words
    calm = fleet.kctl("rpc", "block_size")
    assert (calm.returncode, calm.stderr.count("kctl: the fleet is ")) == (0, 1), "it rests on no broker"
    assert fleet.kctl("rpc", "workers").returncode == 0
    for path in ("lag", "lag?live=1", "brokers", "topics", "members"):
        answer = fetched(fleet, path)
        assert (answer["complete"], len(stale(answer))) == (False, 1), path
    assert fetched(fleet, "status")["brokers"]["age_seconds"] > 2
    eventually(lambda: fetched(fleet, "status")["brokers"]["error"], what="why")
    with urllib.request.urlopen(f"{fleet.about['http_url']}/metrics", timeout=60) as page:
        [age] = [line for line in page.read().decode().splitlines() if line.startswith("kctl_group_stats_age_")]
    assert float(age.split()[-1]) > 2


@pytest.mark.shows("after a broker dies, every view shows the age of its offsets; exit code 3, `complete` false")
def test_offsets_of_a_dead_broker_have_their_age_in_every_view(fleet: Master, own_broker: KafkaBroker) -> None:
    eventually(lambda: is_well(fleet))
    assert own_broker.pid is not None

    with stopped([own_broker.pid]):
        every_view_shows_its_age(fleet)
    eventually(lambda: is_well(fleet), 60)
    own_broker.kill()
    every_view_shows_its_age(fleet)


def test_an_unknown_lag_is_never_in_a_complete_answer(master: Callable[..., Any]) -> None:
    fleet = master(kafka={"auto_offset_reset": "latest"})

    answer = eventually(lambda: (reported := fleet.ask("kafka_lag")).result["unknown"] and reported)

    assert not answer.complete
    assert [(each.sender, each.code) for each in answer.failed] == [("brokers", "unknown")]
    assert "orders-2" in answer.failed[0].message
    assert fleet.kctl("rpc", "offset_checker").returncode == 3


def test_a_deleted_topic_is_named_and_its_lag_is_in_no_complete_answer(fleet: Master, own_broker: KafkaBroker) -> None:
    topics.delete_topic(own_broker.bootstrap_servers, "orders")

    status = eventually(lambda: (ran := fleet.kctl("status")).returncode == 1 and ran)
    lag = fleet.kctl("rpc", "kafka_lag")

    assert status.stdout.startswith("failing: topic orders has not existed since 2")
    assert (lag.returncode, "the lag of orders is not known: the topic does not exist" in lag.stderr) == (3, True)
