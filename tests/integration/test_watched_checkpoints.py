"""`kctl exporter` with checkpoints of Spark queries, which are groups like any other; nothing is written to them."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.checkpoint_faults import NEXT_OFFSETS, RECORDED, copied
from tests.command_lines import run_here
from tests.conftest import eventually
from tests.exporters import Exporter, Samples, running_exporter
from tests.servers import topics
from tests.servers.kafka_broker import KafkaBroker

pytestmark = [pytest.mark.real, pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")]
SETTINGS = """
[exporter]
interval_seconds = 0.2
stale_after_seconds = 5.0
[status]
window_seconds = 4.0
hold_seconds = 1.0
[clusters.main]
bootstrap_servers = "{servers}"
"""


def checkpoint_of(name: str, uri: object, **settings: object) -> str:
    lines = [f"{key} = {json.dumps(value)}" for key, value in {"uri": str(uri), **settings}.items()]
    return "\n".join([f"[checkpoints.{name}]", "interval_seconds = 1.0", *lines, ""])


def batch(checkpoint: Path, number: int, offset: int, *, is_committed: bool = True) -> None:
    """A batch that ends at `offset` in both partitions, as Spark 4.2 writes it."""
    text = (checkpoint / "offsets" / "2").read_text().splitlines()
    metadata = json.loads(text[1]) | {"batchTimestampMs": int(time.time() * 1000)}
    last = text[2].replace(str(NEXT_OFFSETS), str(offset))
    (checkpoint / "offsets" / str(number)).write_text("\n".join([text[0], json.dumps(metadata), last]))
    if is_committed:
        (checkpoint / "commits" / str(number)).write_text((checkpoint / "commits" / "2").read_text())


def lag(samples: Samples, group: str) -> dict[tuple[str, ...], float]:
    return samples.of("kctl_consumer_lag", "topic", "partition", group=group)


def group(exporter: Exporter, name: str) -> dict[str, Any]:
    status, body = exporter.get(f"/api/v1/groups/{name}")
    return json.loads(body) if status == 200 else {}


def is_so(exporter: Exporter, name: str, **values: object) -> Callable[[], bool]:
    def probe() -> bool:
        found = group(exporter, name)
        return {key: found.get(key) for key in values} == values or bool(print(found))

    return probe


def reason(exporter: Exporter, name: str, words: str) -> bool:
    """Whether it stands in the reason of the first partition's status."""
    rows: list[dict[str, Any]] = group(exporter, name).get("rows", [])
    print(rows)
    return words in rows[0]["reason"] if rows else False


@pytest.mark.shows("a checkpoint shows a Spark job as a group with exact lag, status, and why offsets are unknown")
def test_a_checkpoint_is_a_group_with_the_lag_of_what_its_query_has_committed(
    broker: KafkaBroker, tmp_path: Path
) -> None:
    topics.create_topic(broker.bootstrap_servers, "watched", 2)
    topics.produce(broker.bootstrap_servers, "watched", {0: 30, 1: 20})
    job = copied(RECORDED / "4.2.0" / "plain", tmp_path / "job", orders="watched")
    files = {each: each.stat().st_mtime_ns for each in job.rglob("*") if each.is_file()}
    file = tmp_path / "kctl.toml"
    file.write_text(SETTINGS.format(servers=broker.bootstrap_servers) + checkpoint_of("report", job, every="1s"))

    with running_exporter(tmp_path, "-c", str(file)) as exporter:
        expected = {("watched", "0"): 12, ("watched", "1"): 2}
        eventually(lambda: lag(exporter.samples(), "report") == expected, 30, "its lag")
        assert group(exporter, "report")["type"] == "checkpoint"
        assert "no members" in group(exporter, "report")["members_error"]
        for number, offset in ((3, 19), (4, 20), (5, 20)):
            batch(job, number, offset)
            expected = {("watched", "0"): 30 - offset, ("watched", "1"): 20 - offset}
            eventually(lambda now=expected: lag(exporter.samples(), "report") == now, 30, "the batch counts")

        batch(job, 6, 30, is_committed=False)
        eventually(lambda: reason(exporter, "report", "batch has been running for"), 60)
        assert lag(exporter.samples(), "report") == expected
        (job / "offsets" / "6").unlink()
        eventually(is_so(exporter, "report", status="stopped", lag=10), 60)
        assert "the query is stopped or slow" in group(exporter, "report")["reason"]

        (job / "offsets" / "6").write_text("v7\n{}\n")
        (job / "commits" / "6").write_text("v7\n{}")
        eventually(is_so(exporter, "report", status="unknown", lag=None), 60)
        assert "6" in group(exporter, "report")["reason"]
    assert files.items() <= {each: each.stat().st_mtime_ns for each in job.rglob("*") if each in files}.items()


@pytest.mark.shows("a watched job and `kctl checkpoint show` have the same lag, unknown where nobody can know it")
def test_lag_is_that_of_show_with_new_partitions_and_unknown_where_no_log_is(
    broker: KafkaBroker, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    servers = broker.bootstrap_servers
    topics.create_topic(servers, "here", 2)
    topics.produce(servers, "here", {0: 30, 1: 20})
    job = copied(RECORDED / "4.2.0" / "two_sources", tmp_path / "job", orders="here", payments="there")
    file = tmp_path / "kctl.toml"
    own = checkpoint_of("both", job) + checkpoint_of("here", job, topics=["here"])
    file.write_text(SETTINGS.format(servers=servers) + own)

    def watched(name: str = "both") -> dict[tuple[str, int], int | None]:
        return {
            (row["topic"], row["partition"]): row["remaining_count"] for row in group(exporter, name).get("rows", [])
        }

    def shown() -> dict[tuple[str, int], int | None]:
        found = run_here(capfd, "checkpoint", "show", str(job), "-b", servers, "-o", "json")
        return {(row["topic"], row["partition"]): row["lag"] for row in found.rows}

    unknown = {("there", 0): None, ("there", 1): None}
    with running_exporter(tmp_path, "-c", str(file)) as exporter:
        eventually(lambda: watched() == {("here", 0): 12, ("here", 1): 2} | unknown, 30)
        eventually(lambda: shown() == watched() == watched("here"), 10)
        assert "there is no there-0 in this cluster" in group(exporter, "both")["reason"]
        assert "`topics` does not name there" in group(exporter, "here")["reason"]
        assert {group(exporter, name)["status"] for name in ("both", "here")} == {"unknown"}

        topics.create_topic(servers, "there", 2)
        topics.produce(servers, "there", {0: 5, 1: 18})
        topics.add_partitions(servers, "here", 3)
        topics.produce(servers, "here", {2: 7})
        found = {("here", 0): 12, ("here", 1): 2, ("here", 2): 7, ("there", 0): None, ("there", 1): 0}
        eventually(lambda: watched() == found, 90, "the new partition counts, and there is no lag beyond an end")
        assert shown() == found
        assert watched("here") == found | unknown, "the topic of that name is another cluster's"
        eventually(is_so(exporter, "both", status="losing"), 30)


@pytest.mark.shows("a checkpoint whose store hangs delays no scrape, no other checkpoint and no group")
def test_a_store_that_hangs_holds_up_nobody_else(broker: KafkaBroker, tmp_path: Path) -> None:
    topics.create_topic(broker.bootstrap_servers, "hung", 2)
    topics.produce(broker.bootstrap_servers, "hung", {0: 30, 1: 20})
    topics.commit(broker.bootstrap_servers, "of-kafka", "hung", {0: 30})
    hung = copied(RECORDED / "4.2.0" / "plain", tmp_path / "nfs" / "hung", orders="hung")
    well = copied(RECORDED / "4.2.0" / "plain", tmp_path / "disk" / "well", orders="hung")
    (hung / "offsets" / "2").unlink()
    os.mkfifo(hung / "offsets" / "2")  # to open it takes for ever
    file = tmp_path / "kctl.toml"
    checkpoints = checkpoint_of("hung", hung) + checkpoint_of("well", well, every="24h")
    file.write_text(SETTINGS.format(servers=broker.bootstrap_servers) + checkpoints)

    with running_exporter(tmp_path, "-c", str(file)) as exporter:
        eventually(lambda: sum(lag(exporter.samples(), "well").values()) == 14, 30)
        eventually(is_so(exporter, "hung", status="unknown", lag=None), 30)
        batch(well, 3, 20)
        topics.commit(broker.bootstrap_servers, "of-kafka", "hung", {0: 25})
        eventually(lambda: sum(lag(exporter.samples(), "well").values()) == 10, 30, "the other one is read")
        eventually(lambda: sum(lag(exporter.samples(), "of-kafka").values()) == 5, 30, "so is Kafka")
        began = time.monotonic()
        exporter.samples()
        assert time.monotonic() - began < 5
        assert group(exporter, "well")["status"] == "ok", "it is started every 24 h"


def test_a_checkpoint_needs_a_cluster_of_the_file(broker: KafkaBroker, tmp_path: Path) -> None:
    file = tmp_path / "kctl.toml"
    file.write_text(SETTINGS.format(servers=broker.bootstrap_servers) + checkpoint_of("job", "/srv/job", cluster="m"))

    exporter = Exporter(tmp_path, "-c", str(file))

    assert exporter.process.wait(60) != 0
    assert "checkpoints.job.cluster is `m`: it takes the name of a cluster: main" in exporter.log.read_text()
