"""`kctl checkpoint` against a real broker, on checkpoints that Spark 4.2 has written."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kctl.kafka.admin import delete_group
from kctl.kafka.client.access import plain
from kctl.kafka.client.connection import ClusterConnection
from tests.checkpoint_faults import NEXT_OFFSETS, RECORDED, copied, newest, removed
from tests.command_lines import Kctl, run_here
from tests.conftest import eventually
from tests.consumers import member
from tests.object_store_server import BUCKET, ObjectStoreServer
from tests.proxies import UnconditionalProxy
from tests.servers import kafka_tools, topics
from tests.servers.kafka_broker import KafkaBroker

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")


class Job:
    """A query has processed 18 of 20 messages in each of two partitions."""

    def __init__(self, broker: KafkaBroker, folder: Path, topic: str) -> None:
        self.broker = broker
        self.topic = topic
        self.folder = copied(RECORDED / "4.2.0" / "plain", folder / "checkpoint", orders=topic)
        self.began_at = json.loads((self.folder / "offsets/0").read_text().splitlines()[1])["batchTimestampMs"]
        self.create({0: 20, 1: 20})

    def create(self, counts: dict[int, int], at_ms: int | None = None) -> None:
        """Without `at_ms`, messages are older than the query."""
        topics.create_topic(self.broker.bootstrap_servers, self.topic, len(counts))
        self.produce(counts, at_ms)

    def produce(self, counts: dict[int, int], at_ms: int | None = None, topic: str = "") -> None:
        topics.produce(self.broker.bootstrap_servers, topic or self.topic, counts, at_ms or self.began_at - 60_000)

    def recreate(self, counts: dict[int, int]) -> None:
        topics.delete_topic(self.broker.bootstrap_servers, self.topic)
        self.create(counts, self.began_at + 3_600_000)

    def finish_batch(self, number: int, end: int) -> None:
        for name in ("offsets", "commits"):
            text = (self.folder / name / "2").read_text()
            (self.folder / name / str(number)).write_text(re.sub(r'"([01])":18', rf'"\1":{end}', text))


@pytest.fixture
def job(broker: KafkaBroker, tmp_path: Path, request: pytest.FixtureRequest) -> Job:
    return Job(broker, tmp_path, f"job-{abs(hash(request.node.name))}")


@pytest.fixture
def kctl(broker: KafkaBroker, capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: Any) -> Kctl:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return lambda *words: run_here(capfd, "checkpoint", *map(str, words), "-b", broker.bootstrap_servers)


def of_group(broker: KafkaBroker, group: str) -> dict[int, int | None]:
    return {partition: offset for (_, partition), offset in topics.committed(broker.bootstrap_servers, group).items()}


@pytest.mark.shows("`kctl checkpoint show` shows the lag of a Spark job from its checkpoint, without a fleet")
def test_the_lag_of_a_job_is_that_of_its_newest_committed_batch(job: Job, kctl: Kctl) -> None:
    shown = kctl("show", job.folder, "-o", "json")
    first, *_, head, row, _ = kctl("show", job.folder).out.splitlines()

    assert shown.code == 0
    assert shown.document["would_start"] is True
    assert shown.document["committed_batch"] == 2
    assert [(row["next_offset"], row["log_start"], row["log_end"], row["lag"]) for row in shown.rows] == [
        (NEXT_OFFSETS, 0, 20, 2)
    ] * 2
    assert [row["verdict"] for row in shown.rows] == ["ok", "ok"]
    assert all(row["record_time"].endswith("Z") for row in shown.rows)
    assert first.startswith("Spark would start from it")
    assert head.split()[:5] == ["topic", "partition", "next-offset", "log-start", "log-end"]
    assert row.split()[:6] == [job.topic, "0", "18", "0", "20", "2"]


def messages_were_deleted_unread(job: Job) -> None:
    job.produce({0: 5, 1: 5})
    topics.delete_records(job.broker.bootstrap_servers, job.topic, {0: 21, 1: 18})


def two_partitions_are_new(job: Job) -> None:
    topics.add_partitions(job.broker.bootstrap_servers, job.topic, 4)
    job.produce({2: 7, 3: 7})
    topics.delete_records(job.broker.bootstrap_servers, job.topic, {3: 2})


def clocks_are_ten_minutes_apart(job: Job) -> None:
    topics.delete_topic(job.broker.bootstrap_servers, job.topic)
    job.create({0: 20, 1: 20}, job.began_at + 600_000)


def no_batch_was_read(job: Job) -> None:
    for name in ("offsets", "commits"):
        for _ in range(3):
            removed(newest(job.folder / name))


@pytest.mark.parametrize(
    ("happens", "code", "rows"),
    [
        (lambda job: job.recreate({0: 5, 1: 18}), 1, [("beyond the end", None), ("looks recreated", 0)]),
        (lambda job: job.recreate({0: 40, 1: 40}), 0, [("looks recreated", 22)] * 2),
        (messages_were_deleted_unread, 1, [("lost 3", 7), ("ok", 7)]),
        (two_partitions_are_new, 1, [("ok", 2)] * 2 + [("new partition", 7), ("new partition, lost 2", 5)]),
        (lambda job: topics.delete_topic(job.broker.bootstrap_servers, job.topic), 1, [("gone", None)] * 2),
        (clocks_are_ten_minutes_apart, 0, [("ok", 2)] * 2),
        (no_batch_was_read, 0, [("ok", 20)] * 2),
    ],
    ids=["recreated and shorter", "recreated", "deleted unread", "new partitions", "gone", "clocks", "nothing read"],
)
def test_a_partition_has_a_verdict_and_lag_where_it_is_known(
    job: Job, kctl: Kctl, happens: Callable[[Job], None], code: int, rows: list[tuple[str, int | None]]
) -> None:
    happens(job)

    shown = kctl("show", job.folder, "-o", "json")

    assert (shown.code, [(row["verdict"], row["lag"]) for row in shown.rows]) == (code, rows)
    assert ("Spark skips new messages below the next offset" in shown.out) == ("looks recreated" in shown.out)


def test_without_an_answer_of_the_brokers_lag_is_not_known(job: Job, capfd: pytest.CaptureFixture[str]) -> None:
    shown = run_here(capfd, "checkpoint", "show", str(job.folder), "-b", "127.0.0.1:1", "-o", "json", "--timeout", "1")

    assert shown.code == 10
    assert [(row["next_offset"], row["lag"], row["verdict"]) for row in shown.rows] == [(18, None, "unknown")] * 2


def test_exported_offsets_are_those_of_the_newest_committed_batch(job: Job, capfd: pytest.CaptureFixture[str]) -> None:
    removed(job.folder / "commits/2")

    shown = run_here(capfd, "checkpoint", "export", str(job.folder))

    assert json.loads(shown.out) == {job.topic: {"0": 15, "1": 15}}
    assert "batch 2, which was planned and is read again" in shown.err


@pytest.fixture
def commit(job: Job, kctl: Kctl) -> Kctl:
    return lambda *words: kctl("commit", job.folder, "-g", job.topic, "--interval", "0.1", *words)


@pytest.mark.shows("`kctl checkpoint commit` commits a Spark job's completed offsets and shows repeated ones")
def test_the_completed_offsets_are_committed_and_the_repeated_ones_are_named(job: Job, commit: Kctl) -> None:
    removed(job.folder / "commits/2")

    assert (commit().code, commit("--dry-run").code, of_group(job.broker, job.topic)) == (2, 0, {})
    done = commit("-y", "-o", "json")

    assert done.code == 0, done.err
    assert [(row["old"], row["new"], row["repeated"]) for row in done.rows] == [(None, 15, "15-17")] * 2
    assert of_group(job.broker, job.topic) == {0: 15, 1: 15}
    described = kafka_tools.describe_group(job.broker.bootstrap_servers, job.topic)
    assert {(row.current_offset, row.lag) for row in described} == {(15, 5)}


def test_a_checkpoint_that_still_moves_is_not_committed(job: Job, commit: Kctl) -> None:
    timer = threading.Timer(0.5, job.finish_batch, (3, 19))
    timer.start()

    refused = commit("--interval", "2", "-y")

    timer.join()
    assert refused.code == 26
    assert "still moves" in refused.err
    assert of_group(job.broker, job.topic) == {}


def the_group_is_at_19(job: Job) -> None:
    topics.commit(job.broker.bootstrap_servers, job.topic, job.topic, {0: 19, 1: 3})


@pytest.mark.parametrize(
    ("happens", "reason", "too_little", "enough"),
    [
        (the_group_is_at_19, "the group is at 19 already: --force moves it back to 18", ["--trust"], "--force"),
        (lambda job: job.recreate({0: 40, 1: 40}), "the topic looks recreated", ["--force"], "--trust"),
        (lambda job: removed(job.folder / "offsets/1"), "offsets/1 is missing", ["--force"], "--trust"),
        (lambda job: job.recreate({0: 5, 1: 5}), "18 is beyond the end of the log", ["--force", "--trust"], ""),
    ],
    ids=["backwards", "recreated", "damaged", "beyond the end"],
)
def test_a_doubtful_offset_is_committed_only_with_the_option_that_allows_it(
    job: Job, commit: Kctl, happens: Callable[[Job], None], reason: str, too_little: list[str], enough: str
) -> None:
    happens(job)
    before = of_group(job.broker, job.topic)

    for words in ([], too_little):
        refused = commit("-y", *words)
        assert (refused.code, of_group(job.broker, job.topic)) == (26, before)
        assert reason in refused.err

    if enough:
        assert commit("-y", enough).code == 0
        assert of_group(job.broker, job.topic) == {0: 18, 1: 18}


def test_the_logs_start_is_committed_of_new_partitions_and_where_messages_are_gone(job: Job, commit: Kctl) -> None:
    topics.add_partitions(job.broker.bootstrap_servers, job.topic, 3)
    job.produce({0: 5, 2: 5})
    topics.delete_records(job.broker.bootstrap_servers, job.topic, {0: 21, 2: 2})

    assert commit("-y").code == 0

    assert of_group(job.broker, job.topic) == {0: 21, 1: 18, 2: 2}


@pytest.fixture
def follower(job: Job, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    with following(job.folder, job.topic, job.broker.bootstrap_servers, tmp_path) as process:
        yield process


@contextmanager
def following(folder: Path, group: str, servers: str, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    command = ["checkpoint", "commit", str(folder), "-g", group, "--follow", "--interval", "0.2", "-y"]
    with subprocess.Popen(
        [sys.executable, "-m", "kctl", *command, "-b", servers, "--timeout", "2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")},
    ) as process:
        yield process
        process.kill()


def waits(process: subprocess.Popen[str], words: str = "retrying every") -> None:
    assert process.stderr is not None
    assert any(words in line for line in process.stderr)


def test_a_follower_waits_for_brokers_before_its_first_commit(job: Job, tmp_path: Path) -> None:
    away = UnconditionalProxy(int(job.broker.bootstrap_servers.rpartition(":")[2]))
    with following(job.folder, job.topic, away.endpoint.removeprefix("http://"), tmp_path) as process:
        waits(process)
        with away:
            eventually(lambda: of_group(job.broker, job.topic) == {0: 18, 1: 18}, 60, "the first commit")
            process.kill()


def test_a_follower_tries_a_partition_that_failed_again_without_a_batch(job: Job, tmp_path: Path) -> None:
    servers, other = job.broker.bootstrap_servers, f"{job.topic}-2"
    folder = copied(RECORDED / "4.2.0" / "two_sources", tmp_path / "two", orders=job.topic, payments=other)
    topics.create_topic(servers, other, 2)
    job.produce({0: 18, 1: 18}, topic=other)

    with following(folder, job.topic, servers, tmp_path) as process:
        eventually(lambda: len(topics.committed(servers, job.topic)) == 4, what="the first commit")
        topics.delete_topic(servers, other)
        for name in ("offsets", "commits"):
            shutil.copy(folder / name / "2", folder / name / "3")
        waits(process, "2 of 4 offsets")
        topics.create_topic(servers, other, 2)
        job.produce({0: 18, 1: 18}, topic=other)

        eventually(lambda: topics.committed(servers, job.topic).get((other, 0)) == 18, 60, "it is committed, too")


@pytest.mark.shows("`kctl checkpoint commit --follow` commits each finished batch and never moves a group back")
def test_batches_are_committed_at_once_and_after_a_time_without_the_checkpoint(
    job: Job, follower: subprocess.Popen[str]
) -> None:
    eventually(lambda: of_group(job.broker, job.topic) == {0: 18, 1: 18}, what="the first commit")
    job.finish_batch(3, 19)
    eventually(lambda: of_group(job.broker, job.topic) == {0: 19, 1: 19}, what="the next batch")
    job.finish_batch(4, 17)
    job.finish_batch(5, 20)
    eventually(lambda: of_group(job.broker, job.topic) == {0: 20, 1: 20}, what="not backwards, then on")

    away = job.folder.rename(job.folder.with_name("away"))
    waits(follower)
    shutil.move(away, job.folder)
    job.produce({0: 1, 1: 1})
    job.finish_batch(6, 21)
    eventually(lambda: of_group(job.broker, job.topic) == {0: 21, 1: 21}, what="it goes on")
    follower.send_signal(signal.SIGTERM)

    assert follower.wait(20) == 0


def test_a_group_with_members_is_left_alone(job: Job, commit: Kctl, follower: subprocess.Popen[str]) -> None:
    eventually(lambda: of_group(job.broker, job.topic) == {0: 18, 1: 18}, what="the first commit")
    with member(job.broker.bootstrap_servers, job.topic, job.topic):
        assert commit("-y").code == 24
        job.finish_batch(3, 19)

        assert follower.wait(20) == 24


def test_a_follower_commits_again_without_a_batch(job: Job, commit: Kctl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kctl.cli.checkpoint.commit._EVERYTHING_SECONDS", 0.5)

    def forget_and_wait() -> None:
        try:
            eventually(lambda: of_group(job.broker, job.topic), what="the first commit")
            with ClusterConnection(plain(job.broker.bootstrap_servers), 30) as connection:
                connection.open()
                delete_group(connection, job.topic)
            found.append(eventually(lambda: of_group(job.broker, job.topic), what="the second commit"))
        finally:
            os.kill(os.getpid(), signal.SIGINT)

    found: list[dict[int, int | None]] = []
    thread = threading.Thread(target=forget_and_wait)
    thread.start()
    done = commit("--follow", "-y")
    thread.join()

    assert found == [{0: 18, 1: 18}]
    assert done.code == 0


def test_checkpoints_in_buckets_are_read(job: Job, kctl: Kctl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ObjectStoreServer(tmp_path / "s3") as server:
        folder = server.folder("jobs/orders")
        for file in (each for each in job.folder.rglob("*") if each.is_file()):
            folder.write(str(file.relative_to(job.folder)), file.read_bytes())
        assert server.keys is not None
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", server.endpoint)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", server.keys.id)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", server.keys.secret)

        shown = kctl("show", f"s3a://{BUCKET}/jobs/orders", "-o", "json")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
        refused = kctl("show", f"s3://{BUCKET}/jobs/orders")

    assert (shown.code, [row["lag"] for row in shown.rows]) == (0, [2, 2])
    assert refused.code == 25
    assert "rejects these keys" in refused.err
