"""While a broker is dead or hangs, every view shows the age of its offsets, and none is complete."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.command_lines import Kctl, Ran, run_here
from tests.conftest import eventually
from tests.integration.conftest import Master
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
    topics.commit(own_broker.bootstrap_servers, one.config.parent.name, "orders", {2: 0})
    eventually(lambda: one.ask("kafka_lag").complete)
    return one


@pytest.fixture
def kctl(capfd: pytest.CaptureFixture[str]) -> Kctl:
    return lambda fleet, *words: run_here(capfd, "-c", str(fleet.config), *words)


def shows_its_age(fleet: Master, kctl: Kctl, words: tuple[str, ...]) -> None:
    ran = Ran(0, "", "")

    def stale_with_exit_code_3() -> bool:
        nonlocal ran
        ran = kctl(fleet, *words)
        return ran.code == 3 and "s old" in ran.err

    try:
        eventually(stale_with_exit_code_3, 30, what=f"{' '.join(words)} shows how old its offsets are")
    except AssertionError as error:
        error.add_note(f"exit code {ran.code}\n{ran.out}{ran.err}")
        raise


def fetched(fleet: Master, path: str) -> Any:
    return json.loads(fleet.get(f"/api/v1/{path}"))


def stale(answer: dict[str, Any]) -> list[str]:
    return [each["message"] for each in answer["failed"] if (each["from"], each["code"]) == ("brokers", "stale")]


ASKED = ("rpc", "kafka_lag", "--fail-above", "1000")
VIEWS: tuple[tuple[str, ...], ...] = (("rpc", "offset_checker"), ("rpc", "metadata_topics"))


@pytest.mark.shows("after a broker dies, every view shows the age of its offsets; exit code 3, `complete` false")
def test_offsets_of_a_dead_broker_have_their_age_in_every_view(
    fleet: Master, kctl: Kctl, own_broker: KafkaBroker
) -> None:
    eventually(lambda: kctl(fleet, *ASKED).code == 0 and kctl(fleet, "status").code == 0)

    own_broker.kill()

    for words in (ASKED, *VIEWS):  # each is stale 5 s after the last answer it is based on
        shows_its_age(fleet, kctl, words)
    why = "no Kafka broker has answered since 2"  # at first, not everything was answered
    verdict = eventually(lambda: why in (ran := kctl(fleet, "status")).out.splitlines()[0] and ran, what=why)
    assert verdict.code == 1
    for words in [*VIEWS, ASKED, ("rpc", "member_leader")]:
        answer = json.loads(kctl(fleet, *words, "-o", "json").out)
        assert (answer["complete"], len(stale(answer))) == (False, 1), words
    calm = kctl(fleet, "rpc", "block_size")
    assert (calm.code, calm.err.count("kctl: the fleet is ")) == (0, 1), "it rests on no broker"
    assert kctl(fleet, "rpc", "workers").code == 0
    for path in ("lag", "lag?live=1", "brokers", "topics", "members"):
        answer = fetched(fleet, path)
        assert (answer["complete"], len(stale(answer))) == (False, 1), path
    assert fetched(fleet, "status")["brokers"]["age_seconds"] > 2
    eventually(lambda: fetched(fleet, "status")["brokers"]["error"], what="why")
    [age] = [line for line in fleet.get("/metrics").splitlines() if line.startswith("kctl_group_stats_age_")]
    assert float(age.split()[-1]) > 2
