from __future__ import annotations

import json
from typing import Any

import pytest

from kctl_agent.attached.queries import Queries, offsets_of

KAFKA = "KafkaV2[Subscribe[orders]]"


def progress(batch_id: int, ends: object, query: str = "q1", **more: Any) -> str:
    return json.dumps(
        {
            "id": query,
            "batchId": batch_id,
            "numInputRows": 10,
            "processedRowsPerSecond": 5.0,
            "durationMs": {"triggerExecution": 250},
            "sources": [{"description": KAFKA, "startOffset": "None", "endOffset": ends}],
            **more,
        }
    )


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
    queries.progressed(progress(0, {"orders": {"0": 10}}))
    queries.progressed(progress(0, {"orders": {"0": 10}}), is_from_listener=False)
    queries.progressed(progress(1, {"orders": {"0": 20}}))
    queries.ends({("orders", 0): 0}, {("orders", 0): 25}, at=1.0)

    snapshot = queries.snapshot(2.0)

    [row] = snapshot.partitions
    assert (row.position, row.committed, row.end, row.lag) == (20, 20, 25, 5)
    work = snapshot.worker
    assert (work.batch_id, work.batches_total, work.rows_total, work.last_batch_seconds) == (1, 2, 20, 0.25)
    assert (work.kind, work.state) == ("attached", "running")


def test_a_source_that_is_not_kafka_reports_no_partitions() -> None:
    queries = Queries("report")
    queries.progressed(progress(0, None, sources=[{"description": "RateStreamV2[]", "endOffset": 7}]))

    assert queries.positions() == {}
    assert queries.snapshot(1.0).partitions == ()


def test_a_partition_that_two_queries_read_is_as_far_as_the_slower_one() -> None:
    queries = Queries("report")
    queries.progressed(progress(3, {"orders": {"0": 30}}, "q1"))
    queries.progressed(progress(3, {"orders": {"0": 12, "1": 5}}, "q2"))

    assert queries.positions() == {("orders", 0): 12, ("orders", 1): 5}
    queries.terminated("q2", None)
    assert queries.positions() == {("orders", 0): 30}


def test_the_first_line_of_an_error_that_ended_a_query_is_kept_until_a_batch_is_finished() -> None:
    queries = Queries("report")
    queries.progressed(progress(0, {"orders": {"0": 1}}))
    queries.terminated("q1", "there is no such column\n\tat org.apache.spark…")

    assert queries.snapshot(1.0).worker.last_error == "there is no such column"
    queries.progressed(progress(0, {"orders": {"0": 2}}, "q2"))
    assert queries.snapshot(1.0).worker.last_error is None


def test_a_listener_that_spark_has_dropped_is_noticed() -> None:
    queries = Queries("report")
    queries.progressed(progress(0, {"orders": {"0": 1}}))
    assert not queries.is_deaf(["q1"])

    for batch_id in (1, 2):
        queries.progressed(progress(batch_id, {"orders": {"0": batch_id}}), is_from_listener=False)
    assert queries.is_deaf(["q1"])

    queries.progressed(progress(2, {"orders": {"0": 2}}))
    assert not queries.is_deaf(["q1"])


def test_without_a_poll_of_the_brokers_the_lag_is_not_known() -> None:
    queries = Queries("report")
    queries.progressed(progress(0, {"orders": {"0": 1}}))

    assert queries.snapshot(1.0).partitions[0].lag is None
    assert queries.failed("poll: the brokers are away")
    assert not queries.failed("poll: the brokers are away")
    assert queries.snapshot(1.0).worker.last_error == "poll: the brokers are away"


def test_the_offsets_of_another_cluster_are_left_out() -> None:
    queries = Queries("report")
    queries.progressed(progress(3, {"orders": {"0": 30}}, "q1"))
    queries.progressed(progress(3, {"orders": {"0": 12}, "refunds": {"0": 5}}, "q2"))

    assert queries.leave_out({"q2"}) == {"q2"}

    assert queries.positions() == {("orders", 0): 30}
    assert queries.leave_out({"q2"}) == set()
