"""Without a JVM: the frame passes its Arrow batches to the task in this process."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from kafka import TopicPartition

from kctl_agent.storage.base import StorageUnusable
from kctl_agent.storage.chunk import Binding, StoredOffset
from kctl_agent.storage.lake.folder import LocalFolder
from kctl_agent.storage.lake.storage import LakeStorage
from kctl_agent.worker.query import batch_put
from kctl_agent.worker.query.kafka_source import KafkaSource
from kctl_agent.worker.query.pipeline import Pipeline
from kctl_agent.worker.query.run import Batch, Run
from tests.conformance.given import next_offset, stored
from tests.conftest import raising
from tests.lake_tables import schema
from tests.scratch_storage import ScratchStorage
from tests.unit.worker.query.frames import Frame, Query, arrow
from tests.worker_settings import settings

TP = TopicPartition("t", 0)


@pytest.fixture(autouse=True)
def mapped_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_put, "map_in_arrow", Frame.mapped)


@pytest.fixture
def storage() -> ScratchStorage:
    made = ScratchStorage(block_messages=3)
    made.init_offsets([StoredOffset("t", 0, None, 0)])
    return made


@pytest.fixture
def batches() -> list[Batch]:
    return []


@pytest.fixture
def pipeline(storage: ScratchStorage, batches: list[Batch], tmp_path: Path) -> Pipeline:
    return Pipeline(settings(tmp_path), storage, batches.append)


@pytest.fixture
def run(pipeline: Pipeline, storage: ScratchStorage, tmp_path: Path) -> Run:
    made = Run(pipeline.batch_put(storage), {TP: KafkaSource(0, None, 1)}, tmp_path / "checkpoint", pipeline.on_batch)
    made.query = Query()
    (made.checkpoint / "offsets").mkdir(parents=True)
    pipeline._runs = {frozenset({TP}): made}
    return made


def put(run: Run, batch_id: int, end: int, *records: pa.RecordBatch) -> None:
    (run.checkpoint / "offsets" / str(batch_id)).write_text("v1\n{}\n" + json.dumps({"t": {"0": end}}))
    run.put_batch(Frame(*records), batch_id)


def test_batches_are_reported(run: Run, pipeline: Pipeline, storage: ScratchStorage, batches: list[Batch]) -> None:
    put(run, 0, 3, arrow([0, 1, 2]))

    assert stored(storage) == [0, 1, 2]
    assert pipeline.positions == pipeline.planned == {TP: 3}
    [batch] = batches
    assert (batch.batch_id, batch.rows, batch.ends, batch.last_timestamps) == (0, 3, {TP: 3}, {TP: 0.02})
    assert pipeline.batch_started_at is None

    for batch_id, end, records in ((1, 8, [arrow([3, 4, 5])]), (2, 9, [])):
        put(run, batch_id, end, *records)
        assert next_offset(storage) == end, "offsets without a record count too"


def test_a_batch_whose_gate_is_closed_or_that_comes_twice_stores_nothing(run: Run, storage: ScratchStorage) -> None:
    put(run, 1, 3, arrow([0, 1, 2]))
    with pytest.raises(RuntimeError, match="batch 1 was called after batch 1"):
        put(run, 1, 4, arrow([3]))
    run.gate.set()
    with pytest.raises(RuntimeError, match="revoked or the query is stopping"):
        put(run, 2, 4, arrow([3]))

    assert stored(storage) == [0, 1, 2]


def test_truncation_ends_a_query(run: Run, pipeline: Pipeline, storage: ScratchStorage, batches: list[Batch]) -> None:
    put(run, 0, 3, arrow([0, 1, 2]))
    put(run, 1, 2)

    assert pipeline.draining == {frozenset({TP})}
    assert (pipeline.positions, next_offset(storage), len(batches)) == ({TP: 3}, 3, 1)


def test_a_query_that_ended_reports_whether_its_storage_was_the_cause(
    run: Run, pipeline: Pipeline, storage: ScratchStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "writer", raising(StorageUnusable("no room")))
    with pytest.raises(RuntimeError, match=r"^StorageUnusable: no room$"):
        put(run, 0, 3, arrow([0, 1, 2]))
    run.query.isActive = False

    [failure] = pipeline.failures().values()
    assert (failure.text, failure.is_storage) == ("StorageUnusable: no room", True)
    assert pipeline.positions == {TP: 0}


def test_a_stopped_query_gives_back_what_is_stored_and_no_checkpoint(run: Run, pipeline: Pipeline) -> None:
    put(run, 0, 3, arrow([0, 1, 2]))

    assert pipeline.stop(0.0) == {TP: 3}
    assert (run.query.stops, run.gate.is_set(), run.checkpoint.exists()) == (1, True, False)
    assert (pipeline.sources, pipeline._runs, pipeline.positions) == (None, {}, {})


def test_only_an_idle_query_is_drained_at_once_and_a_stop_waits_for_no_batch_or_jvm(
    run: Run, pipeline: Pipeline, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with run.busy:
        assert not pipeline.drain()
        assert pipeline.draining == {frozenset({TP})}, "no further batch begins all the same"
    assert pipeline.drain()

    monkeypatch.setattr(run.query, "stop", raising(RuntimeError("the JVM is gone")))
    with run.busy:
        assert pipeline.stop(0.0) == {TP: 0}
    assert "it is abandoned and will run again" in caplog.text
    assert "stopping the query: the JVM is gone" in caplog.text
    assert pipeline._runs == {}


def test_dead_letters_of_a_table_are_not_requeued_before_their_cluster_is_known(tmp_path: Path) -> None:
    """A worker asks as soon as it has a driver. It once found no dead letters and counted the request as done."""
    storage = LakeStorage(LocalFolder(tmp_path / "orders"))
    pipeline = Pipeline(settings(tmp_path), storage, lambda _: None)
    storage.prepare()
    storage.fit(schema(("offset", "long")))

    assert pipeline.requeue_put() is None

    storage.bind(Binding("g", "cluster-1"))
    assert pipeline.requeue_put() is not None
