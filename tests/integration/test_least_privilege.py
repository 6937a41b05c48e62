"""With the Kafka rights in SECURITY.md everything works; without any single one it does not."""

import asyncio
import contextlib
import io
import json
import re
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.errors import KafkaError

from kctl.cli.entry import run
from kctl.config.clusters import CheckpointSection
from kctl.config.load import load, load_exporter
from kctl.config.sections import ExporterSection, StatusSection
from kctl.groups.collector import ClusterCollector, CollectedCluster
from kctl.kafka.client.access import of_cluster, of_fleet
from kctl.kafka.polls.cluster_reader import ClusterReader
from kctl.master.launch import worker_settings
from kctl_agent.attached.brokers import ShadowGroup, log_bounds
from kctl_agent.worker.consumer_group.membership import Membership
from kctl_agent.worker.offsets.brokers import Brokers
from kctl_agent.worker.settings import parse
from tests.checkpoint_faults import RECORDED, copied
from tests.conftest import eventually
from tests.servers import topics
from tests.servers.secured_broker import Right, SecuredBroker

pytestmark = [
    pytest.mark.usefixtures("collected_here"),
    pytest.mark.timeout(240),
    pytest.mark.filterwarnings("ignore:unclosed <s:ResourceWarning"),  # kafka-python's sockets of failed connects
]
SECURITY = (Path(__file__).parents[2] / "SECURITY.md").read_text(encoding="utf-8")
TOPIC, GROUP = "orders", "billing"
NAMES = {"TOPIC": TOPIC, "GROUP": GROUP, "CLUSTER": "kafka-cluster"}
COMMANDS = {
    "lag": ["-g", GROUP, "-t", TOPIC],
    "offset-fetch": ["-g", GROUP, "-t", TOPIC],
    "group": [GROUP],
    "list-offsets": ["-t", TOPIC],
    "topic": [TOPIC],
    "reset-offsets": ["-g", GROUP, "-t", TOPIC, "--to", "earliest", "--yes"],
    "consume": ["-t", TOPIC, "-p", "0", "--from", "0", "-n", "1"],
    "produce": ["-t", TOPIC, "-p", "0", "a message"],
    "groups": [],
    "topics": [],
    "brokers": ["-o", "json"],
    "create-topic": [TOPIC + "-2", "--partitions", "1"],
    "alter-topic --set": ["orders", "--set", "retention.ms=86400000", "--execute"],
    "alter-topic --partitions": ["orders", "--partitions", "3", "--dry-run"],
    "delete-topic": [TOPIC + "-2", "--execute"],
    "delete-group": ["idle", "--execute"],
    "show": [],
    "commit": ["-g", GROUP, "--interval", "0.1", "--force", "--trust", "--yes"],
}
OF_CHECKPOINTS = ("show", "commit")
SHOWN = {"groups": GROUP, "topics": TOPIC, "brokers": '"leaders": 2', "delete-group": TOPIC}
"""What the answer shows a user with this right. Others get a shorter answer, without an error."""
OTHER_NAMES = {
    "attached application": {"GROUP": "shadow"},
    "create-topic": {"TOPIC": TOPIC + "-2"},
    "delete-topic": {"TOPIC": TOPIC + "-2"},
    "delete-group": {"GROUP": "idle"},
}


def documented() -> list[tuple[str, list[Right]]]:
    table = SECURITY[SECURITY.index("| who | topic |") :].split("\n\n")[0]
    found = []
    for line in table.splitlines()[2:]:
        who, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        names = re.findall(r"`(?:kctl (?:kafka|checkpoint) )?(\w[\w-]*(?: --\w+)?)`", who) or [who]
        for name in names:
            named = NAMES | OTHER_NAMES.get(name, {})
            rights = [
                Right(resource, named[resource], operation)
                for resource, cell in zip(("TOPIC", "GROUP", "CLUSTER"), cells, strict=True)
                for operation in re.findall(r"`(\w+)`", cell)
            ]
            found.append((name, rights))
    return found


@pytest.fixture(scope="module")
def secured() -> Iterator[SecuredBroker]:
    with SecuredBroker.running() as made:
        topics.create_topic(made.plain, TOPIC, 2)
        for words in (COMMANDS["produce"], ["-t", TOPIC, "-p", "1", "another"]):
            assert run(["kafka", "produce", "-b", made.plain, *words], {}) == 0
        assert run(["kafka", "reset-offsets", "-b", made.plain, *COMMANDS["reset-offsets"]], {}) == 0
        yield made


@pytest.fixture
def job(tmp_path: Path) -> Path:
    folder = copied(RECORDED / "4.2.0" / "plain", tmp_path / "job")
    for entry in folder.glob("offsets/[0-9]*"):
        entry.write_text(re.sub(r'"([01])":\d+', r'"\1":1', entry.read_text()))
    return folder


def configuration(secured: SecuredBroker, user: str, group: str) -> Path:
    of_group = {"bootstrap_servers": secured.sasl_tls, "group": group, "topics": [TOPIC]}
    settings = of_group | secured.settings(user)
    file = secured.directory / f"{user}.toml"
    file.write_text("[kafka]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in settings.items()))
    return file


def can_be_a_worker(file: Path) -> bool:
    settings = parse(json.dumps(worker_settings(load(file, {}), "worker-0", []))).kafka
    assert settings.security is not None
    member = Membership(settings, "worker-0", lambda _: {}, lambda: None, lambda _: None)
    client = settings.security.client_settings() | {"bootstrap_servers": settings.bootstrap_servers}
    try:
        with closing(Brokers(settings, "worker-0")) as brokers:
            for _ in range(100):
                member.poll(0.1)
                if len(member.partitions) == 2:
                    break
            found, _ = brokers.found(member.partitions)
            with closing(KafkaConsumer(**client, enable_auto_commit=False)) as reader:
                reader.assign([TopicPartition(TOPIC, 0)])
                reader.seek(TopicPartition(TOPIC, 0), 0)
                read = reader.poll(timeout_ms=5000, max_records=1)
            member.commit(dict.fromkeys(member.partitions, 0))
            return len(found) == 2 and bool(read)
    except (KafkaError, AssertionError):
        return False
    finally:
        member.close()


def can_be_a_master(file: Path) -> bool:
    access = of_fleet(load(file, {}))
    with closing(ClusterReader.of_group(access, GROUP, [TOPIC], "read_uncommitted", 10)) as reader:
        reading = reader.read()
    return not reading.errors and len(reading.end) == 2 and GROUP in reading.members and GROUP in reading.committed


def can_be_an_exporter(secured: SecuredBroker, file: Path) -> bool:
    """Over TLS and SASL, next to a cluster without them. Each cluster has its own table."""
    config = file.with_suffix(".clusters.toml")
    table = file.read_text().replace("[kafka]", "[clusters.secured]").replace(f'group = "{GROUP}"\n', "")
    table = re.sub(r"topics = .*\n", "", table)
    config.write_text(f'{table}[clusters.plain]\nbootstrap_servers = "{secured.plain}"\n')
    loaded = load_exporter(config, {})
    lags = {}
    for name, cluster in loaded.clusters.items():
        access = of_cluster(name, cluster, config, {})
        collector = ClusterCollector(CollectedCluster(name, access, loaded.exporter, loaded.status))
        lags[name] = [group.lag.total for group in collector.collect().groups if group.group == GROUP]
        asyncio.run(collector.close())
    assert [lag is not None for lag in lags["plain"]] == [True]
    return lags["secured"] == lags["plain"]


def can_watch(file: Path, job: Path) -> bool:
    access, section = of_fleet(load(file, {})), CheckpointSection(uri=str(job), interval_seconds=1.0)
    exporter, status = ExporterSection(groups=(), timeout_seconds=5.0), StatusSection()
    collected = CollectedCluster("secured", access, exporter, status, (), {"job": section})
    collector = ClusterCollector(collected)
    try:
        for _ in range(20):
            threading.Event().wait(0.1)
            if any(each.lag.total is not None and not each.lag.unknown for each in collector.collect().groups):
                return True
        return False
    finally:
        asyncio.run(collector.close())


def can_be_attached(file: Path) -> bool:
    settings = parse(json.dumps(worker_settings(load(file, {}), "worker-0", []))).kafka
    assert settings.security is not None
    client = settings.security.client_settings() | {"bootstrap_servers": settings.bootstrap_servers}
    try:
        with closing(KafkaAdminClient(**client, request_timeout_ms=5000)) as admin:
            _, ends = log_bounds(admin, [(TOPIC, 0), (TOPIC, 1)])
            return len(ends) == 2 and ShadowGroup(admin, "shadow").commit(ends) == ends
    except KafkaError:
        return False


def prepare(secured: SecuredBroker, who: str) -> None:
    if who in ("create-topic", "delete-topic"):
        run(["kafka", "delete-topic", "-b", secured.plain, *COMMANDS["delete-topic"]], {})
    if who == "delete-topic":
        topics.create_topic(secured.plain, TOPIC + "-2", 1)
    if who == "delete-group":
        words = ["-b", secured.plain, "-g", "idle", "-t", f"{TOPIC}:0", "--to", "0", "--execute"]
        assert run(["kafka", "reset-offsets", *words], {}) == 0


@pytest.mark.shows("the rights in SECURITY.md suffice, and each of them is needed")
@pytest.mark.parametrize(("who", "rights"), documented(), ids=lambda value: value if isinstance(value, str) else "")
def test_each_documented_right_is_needed(secured: SecuredBroker, job: Path, who: str, rights: list[Right]) -> None:
    user = f"only-{who}".replace(" ", "")
    file = configuration(secured, user, GROUP)
    secured.add_user(user)

    def works() -> bool:
        if who == "worker":
            return can_be_a_worker(file)
        if who == "master":
            return can_be_a_master(file)
        if who == "exporter":
            return can_be_an_exporter(secured, file)
        if who == "watched checkpoint":
            return can_watch(file, job)
        if who == "attached application":
            return can_be_attached(file)
        prepare(secured, who)
        printed = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")  # `consume` writes the bytes of messages
        with contextlib.redirect_stdout(printed):
            words = ["checkpoint", who, str(job)] if who in OF_CHECKPOINTS else ["kafka", who.split()[0]]
            code = run([*words, "--config", str(file), "--timeout", "5", *COMMANDS[who]], {})
        printed.seek(0)
        return code == 0 and SHOWN.get(who, "") in printed.read()

    for right in rights:
        secured.grant(user, right)
    eventually(works, 60, f"{who} works with its rights")
    for right in rights:
        secured.revoke(user, right)
        eventually(lambda: not works(), 60, f"{who} does not work without {right}")
        secured.grant(user, right)
        eventually(works, 60, f"{who} works again with {right}")


def test_a_topic_without_rights_hides_no_other_topic_of_a_worker(secured: SecuredBroker) -> None:
    user, second = "of-two-topics", "invoices"
    topics.create_topic(secured.plain, second, 1)
    file = configuration(secured, user, GROUP)
    file.write_text(file.read_text().replace(f'["{TOPIC}"]', f'["{TOPIC}", "{second}"]'))
    secured.add_user(user)
    [rights] = [rights for who, rights in documented() if who == "worker"]
    of_second = [right._replace(name=second) for right in rights if right.resource == "TOPIC"]
    for right in (*rights, *of_second):
        secured.grant(user, right)
    settings = parse(json.dumps(worker_settings(load(file, {}), "worker-0", []))).kafka

    with closing(Brokers(settings, "worker-0")) as brokers:

        def described() -> set[str]:
            with contextlib.suppress(KafkaError):  # the broker learns of the rights a little later
                return {tp.topic for tp in brokers.partitions_of({TOPIC, second})}
            return set()

        eventually(lambda: described() == {TOPIC, second}, what="both are described")
        for right in of_second:
            secured.revoke(user, right)
        eventually(lambda: described() == {TOPIC}, what="one may not be described")
