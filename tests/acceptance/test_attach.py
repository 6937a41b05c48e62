"""The example of an attached PySpark application works on a real Spark and a real broker."""

import os
import re
import shlex
import signal
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from kctl.errors import KctlError
from tests.acceptance.documented import Terminals
from tests.acceptance.fleets import SETTLE_SECONDS, START_SECONDS, Fleet, MakeFleet
from tests.acceptance.spark_jobs import SparkJobs
from tests.conftest import eventually
from tests.servers import kafka_tools, topics
from tests.servers.secured_broker import PASSWORD, Right, SecuredBroker

ROOT = Path(__file__).parents[2]
LINE = re.compile(r"^.*spark-submit .* examples/attached\.py 127.0.0.1:9092 orders run$", re.M)


@pytest.fixture
def fleet(make_fleet: MakeFleet) -> Fleet:
    fleet = make_fleet(workers=0, partitions=2, engine="own")
    fleet.start()
    eventually(lambda: fleet.ask("ping") is not None, START_SECONDS, "the master answers")
    fleet.send(100)
    return fleet


@pytest.fixture
def report(fleet: Fleet) -> Iterator[subprocess.Popen[bytes]]:
    [line] = LINE.findall((ROOT / "docs" / "attach.md").read_text())
    own = shlex.join([fleet.broker.bootstrap_servers, fleet.topic, str(fleet.directory / "run")])
    names = {"127.0.0.1:9092 orders run": own, "--conf": "--conf spark.ui.enabled=false --conf"}
    with closing(Terminals(fleet.directory / "logs", names, ROOT)) as terminals:
        yield terminals.begin(f"exec env {line}")


def rows(fleet: Fleet) -> dict[int, dict[str, Any]]:
    return {p: row for p, row in fleet.offsets().items() if row["worker"] == "report"}


def test_attached_jobs_are_in_all_views(fleet: Fleet, report: subprocess.Popen[bytes]) -> None:
    eventually(
        lambda: {p: row["current_offset"] for p, row in rows(fleet).items()} == {0: 50, 1: 50},
        2 * START_SECONDS,
        "its position is known, with the brokers found in its plan",
    )
    fleet.send(60)
    eventually(
        lambda: [(row["current_offset"], row["kafka_max_offset"]) for row in rows(fleet).values()] == [(80, 80)] * 2,
        SETTLE_SECONDS,
        "it goes on, and its end offsets are the brokers'",
    )
    own = fleet.workers()["report"]
    assert (own["kind"], own["state"], own["supervisor"]) == ("attached", "running", None)
    assert own["last_batch_rows"] is not None
    assert own["rows_total"] == 160

    def seen_by_kafkas_tool() -> bool:
        described = kafka_tools.describe_group(fleet.broker.bootstrap_servers, "report-shadow")
        return {(row.topic, row.current_offset, row.lag) for row in described} == {(fleet.topic, 80, 0)}

    eventually(seen_by_kafkas_tool, SETTLE_SECONDS, "the shadow group holds its offsets")

    os.killpg(report.pid, signal.SIGINT)  # as a terminal does: spark-submit's JVM and Python
    report.wait()
    # If the JVM ends first, it ends its Python with SIGTERM; then the master removes what is left.
    eventually(
        lambda: not list((fleet.directory / "run").glob("report.*")), SETTLE_SECONDS, "Ctrl-C leaves nothing behind"
    )
    assert fleet.kctl("rpc", "ping").returncode == 0


@pytest.mark.long
@pytest.mark.shows("attach works without a fleet, over TLS and SASL, with the rights listed in SECURITY.md")
def test_without_a_fleet_a_job_behind_tls_and_sasl_shows_its_lag_to_ordinary_tools(tmp_path: Path) -> None:
    with SecuredBroker.running() as broker:
        topics.create_topic(broker.plain, "orders", 2)
        topics.produce(broker.plain, "orders", {0: 50, 1: 50})
        broker.add_user("report")
        broker.grant("report", Right("TOPIC", "orders", "READ"))
        login = f'ScramLoginModule required username="report" password="{PASSWORD}";'
        options = {
            "kafka.security.protocol": "SASL_SSL",
            "kafka.ssl.truststore.type": "PEM",
            "kafka.ssl.truststore.location": str(broker.ca_file),
            "kafka.sasl.mechanism": "SCRAM-SHA-512",
            "kafka.sasl.jaas.config": f"org.apache.kafka.common.security.scram.{login}",
        }
        log = tmp_path / "log"

        def seen_by_kafkas_tool() -> bool:
            try:
                described = kafka_tools.describe_group(broker.plain, "report-shadow")
            except KctlError:  # there is no such group yet
                return False
            return [(row.current_offset, row.lag) for row in described] == [(50, 0), (50, 0)]

        with SparkJobs(broker.sasl_tls, log) as job:
            job.begin(tmp_path / "checkpoint", ["orders"], options=options, attach={"commit_group": "report-shadow"})
            refused = "offsets cannot be committed: the Kafka brokers at .* answered GROUP_AUTHORIZATION_FAILED"
            eventually(lambda: re.search(refused, log.read_text()), START_SECONDS, "the right is named")
            broker.grant("report", Right("GROUP", "report-shadow", "READ"))
            eventually(seen_by_kafkas_tool, START_SECONDS, "the shadow group holds its offsets")
            job.kill()
        assert PASSWORD not in log.read_text()
