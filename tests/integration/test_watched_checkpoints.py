"""`kctl exporter` shows checkpoints of Spark queries as groups, and writes nothing to them."""

import json
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from kctl.config.load import read_document
from tests.checkpoint_faults import NEXT_OFFSETS, RECORDED, copied
from tests.conftest import eventually
from tests.exporters import Exporter, Samples, running_exporter
from tests.servers import topics
from tests.servers.kafka_broker import KafkaBroker

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
SETTINGS = """
[exporter]
interval_seconds = 0.2
stale_after_seconds = 5.0
[status]
window_seconds = 2.0
hold_seconds = 1.0
[clusters.main]
bootstrap_servers = "{servers}"
[checkpoints.report]
uri = "{job}"
every = "1s"
interval_seconds = 1.0
"""


def batch(checkpoint: Path, number: int, offset: int, *, is_committed: bool = True) -> None:
    text = (checkpoint / "offsets" / "2").read_text().splitlines()
    metadata = json.loads(text[1]) | {"batchTimestampMs": int(time.time() * 1000)}
    last = text[2].replace(str(NEXT_OFFSETS), str(offset))
    (checkpoint / "offsets" / str(number)).write_text("\n".join([text[0], json.dumps(metadata), last]))
    if is_committed:
        (checkpoint / "commits" / str(number)).write_text((checkpoint / "commits" / "2").read_text())


@dataclass(frozen=True)
class Bench:
    servers: str
    folder: Path

    def job(self, topic: str, at: str = "job") -> Path:
        """The checkpoint of a query that has read 18 of 30 and 18 of 20 messages of a new topic."""
        topics.create_topic(self.servers, topic, 2)
        topics.produce(self.servers, topic, {0: 30, 1: 20})
        return copied(RECORDED / "4.2.0" / "plain", self.folder / at, orders=topic)

    def exporter(self, job: Path) -> AbstractContextManager[Exporter]:
        file = self.folder / "kctl.toml"
        file.write_text(SETTINGS.format(servers=self.servers, job=job))
        return running_exporter(self.folder, "-c", str(file))


@pytest.fixture
def bench(broker: KafkaBroker, tmp_path: Path) -> Bench:
    return Bench(broker.bootstrap_servers, tmp_path)


def group(exporter: Exporter, name: str) -> dict[str, Any]:
    status, body = exporter.get(f"/api/v1/groups/{name}")
    return json.loads(body) if status == 200 else {}


def is_so(exporter: Exporter, name: str, **values: object) -> Callable[[], bool]:
    def probe() -> bool:
        found = group(exporter, name)
        return {key: found.get(key) for key in values} == values or bool(print(found))

    return probe


def reason(exporter: Exporter, name: str, words: str) -> bool:
    rows: list[dict[str, Any]] = group(exporter, name).get("rows", [])
    print(rows)
    return words in rows[0]["reason"] if rows else False


@pytest.mark.shows("a checkpoint shows a Spark job as a group with exact lag, status, and why offsets are unknown")
def test_a_checkpoint_is_a_group_with_its_querys_lag(bench: Bench) -> None:
    job = bench.job("watched")
    files = {each: each.stat().st_mtime_ns for each in job.rglob("*") if each.is_file()}

    with bench.exporter(job) as exporter:
        expected = {("watched", "0"): 12, ("watched", "1"): 2}
        eventually(lambda: exporter.samples().lag("report") == expected, 30, "its lag")
        assert group(exporter, "report")["type"] == "checkpoint"
        assert [group(exporter, "report")[name] for name in ("members", "members_error")] == [[], None]
        advice = "/api/v1/group-advice?group=report"
        eventually(lambda: "a checkpoint is not a group of Kafka" in str(exporter.get(advice)), 30)
        for number, offset in ((3, 19), (4, 20), (5, 20)):
            batch(job, number, offset)
            expected = {("watched", "0"): 30 - offset, ("watched", "1"): 20 - offset}
            eventually(lambda now=expected: exporter.samples().lag("report") == now, 30, "the batch counts")

        batch(job, 6, 30, is_committed=False)
        eventually(lambda: reason(exporter, "report", "batch has been running for"), 60)
        assert exporter.samples().lag("report") == expected
        (job / "offsets" / "6").unlink()
        eventually(is_so(exporter, "report", status="stopped", lag=10), 60)
        assert "the query is stopped or slow" in group(exporter, "report")["reason"]

        (job / "offsets" / "6").write_text("v7\n{}\n")
        (job / "commits" / "6").write_text("v7\n{}")
        eventually(is_so(exporter, "report", status="unknown", lag=None), 60)
        assert "6" in group(exporter, "report")["reason"]
    assert files.items() <= {each: each.stat().st_mtime_ns for each in job.rglob("*") if each in files}.items()


@pytest.mark.shows("a fleet shows the checkpoints of its file beside its own group, and those that a reload brings")
def test_a_reload_adds_checkpoints(bench: Bench, master: Callable[..., Any]) -> None:
    first = bench.job("of-jobs", "first")
    jobs = {"first": first, "other": copied(first, bench.folder / "other")}
    sections = {name: {"uri": str(job), "interval_seconds": 1.0} for name, job in jobs.items()}
    fleet = master(exporter={"interval_seconds": 0.2}, workers={"count": 1}, checkpoints={"first": sections["first"]})

    def lags() -> dict[str, int]:
        found = lag_of(Samples(fleet.get("/metrics")))
        return {name: found.get(name, -1) for name in jobs}

    def reload(**checkpoints: object) -> str:
        fleet.config.write_text(tomli_w.dumps(read_document(fleet.config) | {"checkpoints": checkpoints}))
        return str(fleet.ended(fleet.ask("reload").result)["state"])

    eventually(lambda: lags() == {"first": 14, "other": -1}, 60, "the checkpoint of the file")
    assert reload(**sections) == "done"
    eventually(lambda: lags() == {"first": 14, "other": 14}, 60, "that of the reload, too")
    assert reload(first=sections["first"], other={**sections["other"], "group": "first"}) == "failed"
    assert reload(other=sections["other"]) == "done"
    eventually(lambda: lags() == {"first": -1, "other": 14}, 60, "the first one is gone")
    assert fleet.stop() == 0


def lag_of(samples: Samples) -> dict[str, int]:
    return {name: int(value) for (name,), value in samples.of("kctl_group_lag", "group").items()}
