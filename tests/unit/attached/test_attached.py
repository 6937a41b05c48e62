import json
import os
import signal
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.listener import StreamingQueryProgress

from kctl_agent.attached.application import Attached, Queries, offsets_of
from kctl_agent.attached.brokers import NotTranslatable, elsewhere, settings_of
from kctl_agent.replies.workers import WorkerReply
from tests.guest import guest

ID = str(uuid.uuid4())
KAFKA = "KafkaV2[Subscribe[orders]]"
RUNS = "Processing new data"


def progress(batch_id: int, ends: object, **more: Any) -> str:
    run = {"id": ID, "runId": ID, "name": None, "timestamp": "2026-11-28T09:00:00.000Z", "batchId": batch_id}
    spent = {"batchDuration": 250, "durationMs": {"triggerExecution": 250}, "stateOperators": []}
    rates = {"numInputRows": 10, "inputRowsPerSecond": 1.0, "processedRowsPerSecond": 5.0}
    source = {"description": KAFKA, "startOffset": "None", "endOffset": ends, "latestOffset": None, **rates}
    sink = {"description": "noop", "numOutputRows": 10}
    return json.dumps(run | spent | rates | {"sources": [source], "sink": sink} | more)


@pytest.mark.parametrize(
    ("reported", "offsets"),
    [
        ({"orders": {"0": 17, "1": 4}}, {("orders", 0): 17, ("orders", 1): 4}),
        ('{"orders": {"0": 17}}', {("orders", 0): 17}),
        ("None", {}),
        (None, {}),
        ({"orders": 17}, {}),
        ({"orders": {"x": 17, "1": "4"}}, {}),
        ([], {}),
    ],
)
def test_end_offsets_are_read_as_object_and_as_text(reported: object, offsets: dict[tuple[str, int], int]) -> None:
    assert offsets_of(reported) == offsets


def test_a_progress_makes_positions_and_stats_and_the_same_one_twice_counts_once() -> None:
    queries = Queries("report")
    for batch_id, end in ((0, 10), (0, 10), (1, 20)):
        queries.polled("q1", RUNS, progress(batch_id, {"orders": {"0": end, "1": 0}}))
    queries.ends({("orders", 0): 0}, {("orders", 0): 25}, at=1.0)

    snapshot = queries.snapshot(2.0)

    [row, _] = snapshot.partitions
    assert (row.position, row.committed, row.end, row.lag) == (20, 20, 25, 5)
    work = snapshot.worker
    assert (work.batch_id, work.batches_total, work.rows_total, work.last_batch_seconds) == (1, 2, 20, 0.25)
    assert (work.kind, work.state) == ("attached", "running")
    queries.polled("q1", RUNS, progress(4, {"orders": {"0": 40, "1": 40}}))
    work = queries.snapshot(2.0).worker
    assert (work.batches_total, work.rows_total, work.last_batch_rows) == (5, 20 + 60, 10), "by their offsets"


def test_a_source_that_is_not_kafka_reports_no_partitions() -> None:
    queries = Queries("report")
    rates = [{"description": "RateStreamV2[]", "endOffset": 7}]
    queries.polled("q1", RUNS, progress(0, None, sources=rates, processedRowsPerSecond=float("nan")))

    assert queries.positions() == {}
    assert queries.snapshot(1.0).partitions == ()


def test_a_partition_that_two_queries_read_is_as_far_as_the_slower_one() -> None:
    queries = Queries("report")
    queries.polled("q1", RUNS, progress(3, {"orders": {"0": 30}}))
    queries.polled("q2", RUNS, progress(3, {"orders": {"0": 12, "1": 5}}))
    queries.polled("q3", RUNS, progress(3, {"orders": {"0": 3}, "refunds": {"0": 5}}))

    assert queries.leave_out({"q3"}) == {"q3"}, "offsets of another cluster"
    assert queries.positions() == {("orders", 0): 12, ("orders", 1): 5}
    assert queries.leave_out({"q3"}) == set()
    queries.keep({"q1"})
    assert queries.positions() == {("orders", 0): 30}


def test_a_query_is_starting_until_its_sources_are_there() -> None:
    queries = Queries("report")

    queries.polled("q1", "Initializing sources", None)
    assert queries.snapshot(1.0).worker.state == "starting"
    queries.polled("q1", "Waiting for data to arrive", progress(0, {"orders": {"0": 1}}))
    assert queries.snapshot(1.0).worker.state == "running"
    assert queries.snapshot(1.0).partitions[0].lag is None, "without a poll of the brokers"
    assert queries.failed("poll: the brokers are away")
    assert not queries.failed("poll: the brokers are away")
    assert queries.snapshot(1.0).worker.last_error == "poll: the brokers are away"


SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:9092"}
SCRAM = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="ann" password="a \\"b\\" =;c";'


def test_tls_and_a_login_become_settings_of_kafka_python_however_the_options_are_spelled() -> None:
    options = {
        **SERVERS,
        "kafka.SECURITY.protocol": "SASL_SSL",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": "/etc/ca.pem",
        "kafka.ssl.endpoint.identification.algorithm": "",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": SCRAM,
    }

    settings = settings_of(options)

    assert settings_of(SERVERS) == {"bootstrap_servers": "127.0.0.1:9092", "security_protocol": "PLAINTEXT"}
    assert {key: value for key, value in settings.items() if value is not None} == {
        "bootstrap_servers": "127.0.0.1:9092",
        "security_protocol": "SASL_SSL",
        "ssl_cafile": "/etc/ca.pem",
        "ssl_check_hostname": False,
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "ann",
        "sasl_plain_password": 'a "b" =;c',
    }


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"security.protocol": "SSL", "ssl.truststore.location": "/etc/ca.jks"}, "kafka.ssl.truststore.type JKS"),
        (
            {"security.protocol": "SSL", "ssl.keystore.type": "PKCS12", "ssl.keystore.location": "/etc/me.p12"},
            "kafka.ssl.keystore.type PKCS12",
        ),
        ({"security.protocol": "SSL", "ssl.truststore.certificates": "-----BEGIN"}, "in the text of kafka.ssl.trust"),
        ({"security.protocol": "SASL_PLAINTEXT"}, "kafka.sasl.mechanism GSSAPI"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}, "kafka.sasl.mechanism OAUTHBEARER"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}, "PLAIN with this kafka.sasl.jaas.config"),
    ],
)
def test_options_that_kafka_python_cannot_have_are_named(options: dict[str, str], reason: str) -> None:
    with pytest.raises(NotTranslatable, match=reason):
        settings_of(SERVERS | {f"kafka.{key}": value for key, value in options.items()})


def of(*servers: str) -> list[dict[str, str]]:
    return [{"kafka.bootstrap.servers": each} for each in servers]


@pytest.mark.parametrize(
    ("queries", "own", "others"),
    [
        ({"q1": of("a:1,b:1"), "q2": of("b:1, a:1")}, "a:1,b:1", set()),
        ({"q1": of("a:1"), "q2": of("a:1,b:1")}, "a:1", set()),
        ({"q1": of("a:1"), "q2": of("c:1")}, "a:1", {"q2"}),
        ({"q1": of("a:1"), "q2": of("a:1", "c:1")}, "a:1", {"q2"}),
        ({"q1": of("a:1"), "q2": of("c:1"), "rate": []}, ["c:1"], {"q1"}),
        ({"q1": of("a:1"), "q2": []}, "another-listener:1", set()),
        ({}, "a:1", set()),
    ],
)
def test_queries_elsewhere_are_found(queries: dict[str, list[dict[str, str]]], own: str, others: set[str]) -> None:
    assert elsewhere(queries, own) == others


@dataclass
class Query:
    """A query of Spark Connect, which has no `_jsq`."""

    id: str = ID
    runId: str = field(default_factory=lambda: str(uuid.uuid4()))  # noqa: N815 - Spark's name
    lastProgress: Any = None  # noqa: N815
    error: object = None
    status: Any = field(default_factory=lambda: {"message": "Processing new data"})

    def exception(self) -> object:
        if isinstance(self.error, Exception):
            raise self.error
        return self.error


class Application:
    def __init__(self) -> None:
        self.streams = self
        self.active: list[Query] = []
        self.attached = Attached(self, "report", None, None, None, None)

    def polled(self, *active: Query) -> WorkerReply:
        self.active = list(active)
        self.attached._quietly(self.attached._poll)
        return self.attached._queries.snapshot(1.0).worker


def reported(batch_id: int) -> Any:
    return json.loads(progress(batch_id, {"orders": {"0": 10}}))


@pytest.mark.parametrize("made", [dict, StreamingQueryProgress.fromJson])
def test_the_progress_of_spark_connect_is_read_as_a_dict_and_as_the_class_of_spark_4(made: Any) -> None:
    work = Application().polled(Query("1 without a batch"), Query("2", lastProgress=made(reported(0))))

    assert work.last_error is None
    assert (work.batch_id, work.rows_total) == (0, 10)


def test_the_error_of_a_query_that_restarts_between_two_polls_is_reported_until_it_has_done_a_batch() -> None:
    application, first = Application(), Query(lastProgress=reported(3))
    application.polled(first)

    first.error = "no such column\n\tat org.apache.spark…"
    again = Query()
    work = application.polled(again)

    assert work.last_error == "no such column"
    assert (work.query_id, work.batch_id, work.rows_total) == (ID, None, 0)
    again.lastProgress = reported(0)
    assert application.polled(again).last_error is None


def test_the_error_of_an_ended_query_outlives_a_batch_of_another_query_in_the_same_poll() -> None:
    application, failed = Application(), Query("failed")
    application.polled(failed, Query("other"))

    failed.error = "no such column"

    assert application.polled(Query("other", lastProgress=reported(0))).last_error == "no such column"


def test_an_ended_query_is_dropped_even_if_spark_has_forgotten_it() -> None:
    application, forgotten = Application(), Query(lastProgress=reported(3))
    application.polled(forgotten)

    forgotten.error = ValueError("Streaming query not found")
    work = application.polled()

    assert work.last_error == "poll: Streaming query not found"
    assert work.query_id is None
    assert application.attached._queries.positions() == {}


@pytest.mark.parametrize("ending", ["pass", "raise RuntimeError", "attached.close()", "threading.Event().wait()"])
def test_an_attached_application_that_ends_leaves_no_file(short_dir: Path, ending: str) -> None:
    with guest(short_dir / "run", "report", ending) as process:
        if "wait" in ending:
            assert sorted(os.listdir(short_dir / "run")) == ["report.pid", "report.sock", "report.start"]
            process.send_signal(signal.SIGINT)
        process.wait(60)

    assert os.listdir(short_dir / "run") == []
