from __future__ import annotations

import os
import signal
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.listener import StreamingQueryProgress

from kctl_agent.attached.application import Attached
from kctl_agent.replies.workers import WorkerReply
from tests.guest import guest

ID = str(uuid.uuid4())


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


def progress(batch_id: int, rows: int) -> dict[str, Any]:
    source = {
        "description": "KafkaV2[Subscribe[orders]]",
        "startOffset": None,
        "endOffset": {"orders": {"0": rows}},
        "latestOffset": None,
        "numInputRows": rows,
        "inputRowsPerSecond": 1.0,
        "processedRowsPerSecond": 1.0,
    }
    return {
        "id": ID,
        "runId": str(uuid.uuid4()),
        "name": None,
        "timestamp": "2026-11-28T09:00:00.000Z",
        "batchId": batch_id,
        "batchDuration": 250,
        "durationMs": {"triggerExecution": 250},
        "stateOperators": [],
        "sources": [source],
        "sink": {"description": "noop", "numOutputRows": rows},
        "numInputRows": rows,
        "inputRowsPerSecond": 1.0,
        "processedRowsPerSecond": 1.0,
    }


@pytest.mark.parametrize("made", [dict, StreamingQueryProgress.fromJson])
def test_the_progress_of_spark_connect_is_read_as_a_dict_and_as_the_class_of_spark_4(made: Any) -> None:
    work = Application().polled(Query(lastProgress=made(progress(3, 10))))

    assert work.last_error is None
    assert (work.batch_id, work.rows_total) == (3, 10)


def test_the_error_of_a_query_that_restarts_between_two_polls_is_reported() -> None:
    application, first = Application(), Query(lastProgress=progress(3, 10))
    application.polled(first)

    first.error = "no such column"
    work = application.polled(Query())

    assert work.last_error == "no such column"
    assert (work.query_id, work.batch_id, work.rows_total) == (ID, None, 0)


def test_the_error_of_an_ended_query_outlives_a_batch_of_another_query_in_the_same_poll() -> None:
    application, failed = Application(), Query("failed")
    application.polled(failed, Query("other"))

    failed.error = "no such column"

    assert application.polled(Query("other", lastProgress=progress(0, 1))).last_error == "no such column"


def test_an_ended_query_is_dropped_even_if_spark_has_forgotten_it() -> None:
    application, forgotten = Application(), Query(lastProgress=progress(3, 10))
    application.polled(forgotten)

    forgotten.error = ValueError("Streaming query not found")
    work = application.polled()

    assert work.last_error == "poll: Streaming query not found"
    assert work.query_id is None
    assert application.attached._queries.positions() == {}


@pytest.mark.parametrize("ending", ["pass", "raise RuntimeError", "attached.close()"])
def test_an_attached_application_that_ends_leaves_no_file(short_dir: Path, ending: str) -> None:
    with guest(short_dir / "run", "report", ending) as process:
        process.wait(60)

    assert os.listdir(short_dir / "run") == []


def test_ctrl_c_in_the_middle_of_waiting_leaves_no_file(short_dir: Path) -> None:
    with guest(short_dir / "run", "report") as process:
        assert sorted(os.listdir(short_dir / "run")) == ["report.pid", "report.sock", "report.start"]
        process.send_signal(signal.SIGINT)
        process.wait(60)

    assert os.listdir(short_dir / "run") == []
