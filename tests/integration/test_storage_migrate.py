"""A storage moves to another cluster, to which its topics were copied: two real brokers."""

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer

from kctl.kafka.client.access import plain
from kctl.kafka.client.connection import ClusterConnection
from kctl.kafka.client.layout import topics_of
from kctl_agent.storage.base import OffsetStore
from kctl_agent.storage.chunk import Advance, Binding, OtherGroup, StoredOffset
from kctl_agent.storage.file import FileStorage
from kctl_agent.storage.lake.dead_letters.table import DeadLetterTable
from kctl_agent.storage.lake.folder import LocalFolder
from kctl_agent.storage.lake.storage import LakeStorage
from tests.command_lines import Kctl, run_here, run_process
from tests.integration.conftest import PARTITIONS, TOPIC
from tests.servers import topics
from tests.servers.kafka_broker import KafkaBroker, running_broker
from tests.table_conformance import DEAD_LETTER_SCHEMA, ROW, dead_rows, spark_schema, write

pytestmark = pytest.mark.timeout(120)

HOUR_AGO = int(time.time() * 1000) - 3_600_000  # in milliseconds: retention removes much older messages
BEFORE = 3
STORED = {0: 6, 1: 10, 2: 0, 3: 3}  # of ten messages, of which the new cluster lacks the first in partition 3
AFTER = {0: BEFORE + 6, 1: BEFORE + 10, 2: 0, 3: BEFORE + 2}


@pytest.fixture(scope="module")
def mirror(broker: KafkaBroker) -> Iterator[KafkaBroker]:
    """The new cluster has other messages first in each partition, and lacks the last old message."""
    with running_broker() as new:
        topics.create_topic(new.bootstrap_servers, TOPIC, PARTITIONS)
        for partition in range(PARTITIONS):
            messages = [(b"first", 0), (b"equal", 0), (b"equal", 0), *((b"%d" % n, n // 3) for n in range(7))]
            send(broker, partition, messages)
            copied = messages[partition == 3 :]
            send(new, partition, [*[(b"older", -100)] * BEFORE, *copied, (b"newer", 9)])
        yield new


def send(to: KafkaBroker, partition: int, messages: list[tuple[bytes, int]]) -> None:
    with closing(KafkaProducer(bootstrap_servers=to.bootstrap_servers)) as producer:
        for value, after in messages:
            producer.send(TOPIC, value, key=b"k", partition=partition, timestamp_ms=HOUR_AGO + after)
        producer.flush()


@pytest.fixture(params=["file", "lake"])
def storage(request: pytest.FixtureRequest, broker: KafkaBroker, tmp_path: Path) -> Iterator[OffsetStore]:
    opened: OffsetStore
    if request.param == "file":
        opened = FileStorage(tmp_path / "data" / "storage.sqlite")
        opened.prepare()
    else:
        (tmp_path / "table").mkdir()
        opened = lake = LakeStorage(LocalFolder(tmp_path / "table" / "orders"))
        lake.prepare()
        lake.fit(spark_schema(ROW))
    with closing(opened):
        opened.bind(Binding("g", broker.cluster_id))
        id_ = topic_id(broker)
        opened.init_offsets([StoredOffset(TOPIC, partition, id_, next_) for partition, next_ in STORED.items()])
        yield opened


def topic_id(of: KafkaBroker) -> str | None:
    with ClusterConnection(plain(of.bootstrap_servers), 30) as connection:
        return topics_of(connection.open([TOPIC]))[TOPIC].topic_id


@pytest.fixture
def migrate(
    storage: OffsetStore, broker: KafkaBroker, mirror: KafkaBroker, tmp_path: Path, capfd: Any, monkeypatch: Any
) -> Kctl:
    is_file = isinstance(storage, FileStorage)
    mode = 'mode = "file"' if is_file else f'mode = "lake"\nuri = "file://{tmp_path}/table/orders"'
    for name, of in (("old.toml", broker), ("kctl.toml", mirror)):
        (tmp_path / name).write_text(
            f'[kafka]\nbootstrap_servers = "{of.bootstrap_servers}"\ngroup = "g"\ntopics = ["{TOPIC}"]\n'
            f"[storage]\n{mode}\n"
        )

    monkeypatch.chdir(tmp_path)
    return lambda *words: run_here(capfd, "-c", "kctl.toml", "storage", "migrate", *words)


def offsets(storage: OffsetStore) -> dict[int, int]:
    stored = storage.stored_offsets([(TOPIC, partition) for partition in range(PARTITIONS)])
    return {partition: each.next for (_, partition), each in stored.items()}


@pytest.mark.shows("a fleet in a mirrored cluster continues after the last stored message")
def test_a_storage_follows_copied_topics(storage: OffsetStore, migrate: Kctl, mirror: KafkaBroker) -> None:
    owner = Binding("g", mirror.cluster_id)

    shown = migrate("--from", "old.toml", "--dry-run")
    assert shown.code == 0, shown.err
    assert [line.split()[:4] for line in shown.out.splitlines()[1:]] == [
        [TOPIC, str(partition), str(STORED[partition]), str(AFTER[partition])] for partition in STORED
    ]
    assert offsets(storage) == STORED, "it was only shown"

    done = migrate("--from", "old.toml", "--yes")

    assert done.code == 0, done.err
    assert done.out.endswith("4 partitions taken over\n")
    storage.bind(owner)
    assert offsets(storage) == AFTER
    assert {each.topic_id for each in storage.stored_offsets([(TOPIC, 0)]).values()} == {topic_id(mirror)}
    assert topics.committed(mirror.bootstrap_servers, "g") == {(TOPIC, number): at for number, at in AFTER.items()}


@pytest.mark.parametrize("storage", ["file"], indirect=True)  # a table is set in one commit
def test_an_interrupted_migration_can_be_repeated(storage: OffsetStore, migrate: Kctl, mirror: KafkaBroker) -> None:
    seen = storage.stored_offsets([(TOPIC, 0)])
    storage.init_offsets([StoredOffset(TOPIC, 0, topic_id(mirror), AFTER[0])], seen)

    assert migrate("--from", "old.toml", "--yes").code == 0

    storage.bind(Binding("g", mirror.cluster_id))
    assert offsets(storage) == AFTER


@pytest.mark.parametrize("storage", ["file"], indirect=True)
def test_what_cannot_be_taken_over_changes_nothing(
    storage: OffsetStore, migrate: Kctl, broker: KafkaBroker, mirror: KafkaBroker, tmp_path: Path
) -> None:
    with pytest.raises(OtherGroup, match="kctl storage migrate"):
        storage.bind(Binding("g", mirror.cluster_id))
    seen = storage.stored_offsets([(TOPIC, 3)])
    storage.init_offsets([StoredOffset(TOPIC, 3, seen[TOPIC, 3].topic_id, 1)], seen)
    before = offsets(storage)
    config = tmp_path / "kctl.toml"

    for group, words, why in (
        ("g", ("--from", "old.toml"), "the new cluster does not have the message at offset 0 of the old"),
        ("g", ("--from", "kctl.toml"), "--from names another cluster than the storage's"),
        ("nothing", (), "group nothing has committed nothing there: give --from"),
    ):
        config.write_text(config.read_text().replace('group = "g"', f'group = "{group}"'))
        refused = migrate(*words, "--yes")
        assert refused.code != 0
        assert why in refused.out + refused.err

    storage.bind(Binding("g", broker.cluster_id))
    assert offsets(storage) == before


@pytest.mark.parametrize("storage", ["file"], indirect=True)
def test_without_the_old_cluster_the_fleet_resumes_where_the_group_was_set_in_the_new_one(
    storage: OffsetStore, migrate: Kctl, mirror: KafkaBroker, tmp_path: Path
) -> None:
    reset = ("-c", str(tmp_path / "kctl.toml"), "kafka", "reset-offsets", "-g", "g", "-t", TOPIC, "--execute", "--to")
    assert run_process(*reset, f"@{HOUR_AGO + 5}").returncode == 0

    done = migrate("--yes")

    assert done.code == 0, done.err
    storage.bind(Binding("g", mirror.cluster_id))
    assert offsets(storage) == {0: 13, 1: 13, 2: 13, 3: 12}


def test_without_from_a_storage_goes_neither_back_nor_beyond_a_log(
    storage: OffsetStore, migrate: Kctl, mirror: KafkaBroker
) -> None:
    assert migrate("--from", "old.toml", "--yes").code == 0

    for committed_offset, why in (
        (2, f"the storage already has it up to offset {AFTER[0]}"),
        (5000, "offset 5000 is outside its log, 0 to 14: use `kctl kafka reset-offsets`"),
    ):
        topics.commit(mirror.bootstrap_servers, "g", TOPIC, dict.fromkeys(range(PARTITIONS), committed_offset))
        refused = migrate("--yes")
        assert refused.code != 0
        assert why in refused.out
    storage.bind(Binding("g", mirror.cluster_id))
    assert offsets(storage) == AFTER


@pytest.mark.parametrize("storage", ["lake"], indirect=True)
def test_a_requeue_after_the_move_leaves_the_dead_letters_of_the_old_cluster_and_says_how_many(
    storage: LakeStorage, migrate: Kctl, broker: KafkaBroker, mirror: KafkaBroker, tmp_path: Path
) -> None:
    for cluster, at, more in ((broker.cluster_id, STORED[0], 2), (mirror.cluster_id, AFTER[0], 1)):
        storage.bind(Binding("g", cluster))
        table = DeadLetterTable(storage, "g")
        version = storage.stored_offsets([(TOPIC, 0)])[TOPIC, 0].version
        batch = storage.begin([Advance(TOPIC, 0, version, at, at + more)])
        dead = table.begin(batch, DEAD_LETTER_SCHEMA, table.earlier_try(batch))
        dead.folder.make()
        write(dead.folder, dead_rows(table, batch, (TOPIC, 0), range(at, at + more), cluster=cluster, group="g"))
        dead.commit()
        if cluster == broker.cluster_id:
            assert migrate("--from", "old.toml", "--yes").code == 0

    done = run_process("-c", str(tmp_path / "kctl.toml"), "storage", "dead", "requeue", cwd=tmp_path)

    assert done.stdout == "1 dead letter requeued; 2 dead letters of another cluster left\n"
