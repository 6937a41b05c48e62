from __future__ import annotations

from dataclasses import replace

import pytest

from kctl.master.reduction import gaps
from kctl.reduce.base import Freshness
from kctl.rows.columns import Reals
from tests.partitions import Row, columns_of

FRESH = Freshness(0.5, 0.5, 2.0, None)
SILENT = Freshness(13.2, 13.2, 2.0, "b:9092 refused the connection")
NEVER = Freshness(None, None, 2.0, None)


def row(partition: int, age: float, lag: int | None = 0) -> Row:
    end = None if lag is None else lag
    return Row("orders", partition, 0, 0, 0, end, None, "worker-0", 1, age)


def partitions(*rows: Row) -> tuple[Reals, list[str]]:
    columns = columns_of(*rows)
    return columns.age_seconds, [
        f"{row.topic}-{row.partition}" for row in columns.rows() if row.remaining_count is None
    ]


@pytest.mark.parametrize("rpc", ["kafka_lag", "offset_checker"])
def test_rows_older_than_two_intervals_are_stale_with_age_and_reason(rpc: str) -> None:
    assert gaps(rpc, FRESH, *partitions(row(0, 2.0), row(1, 0.1))) == ()

    [gap] = gaps(rpc, SILENT, *partitions(row(0, 13.2), row(1, 13.2)))
    assert (gap.sender, gap.code) == ("brokers", "stale")
    assert gap.message == "the brokers' offsets are up to 13 s old: b:9092 refused the connection"
    [gap] = gaps(rpc, FRESH, *partitions(row(0, 2.1), row(1, 0.1)))
    assert gap.message == "the brokers' offsets of 1 of 2 partitions are up to 2 s old"


def test_offsets_that_workers_have_just_fetched_are_fresh_although_the_master_reaches_no_broker() -> None:
    assert gaps("kafka_lag", SILENT, *partitions(row(0, 0.3))) == ()


def test_an_unknown_lag_is_named_and_many_are_counted() -> None:
    [gap] = gaps("kafka_lag", FRESH, *partitions(*(row(n, 0.1, None if n else 5) for n in range(10))))

    assert gap.code == "unknown"
    assert gap.message.startswith("the lag of orders-1, orders-2, orders-3, orders-4, orders-5 and 4 more is not known")


def test_without_any_row_only_brokers_that_never_answered_are_a_gap() -> None:
    assert gaps("kafka_lag", FRESH) == ()
    assert [gap.code for gap in gaps("kafka_lag", NEVER)] == ["stale"]
    [gap] = gaps("kafka_lag", replace(FRESH, missing_topics=("orders",)))
    assert (gap.code, gap.message) == ("unknown", "the lag of orders is not known: the topic does not exist")


@pytest.mark.parametrize("rpc", ["member_leader", "metadata_brokers", "metadata_topics"])
def test_metadata_are_as_old_as_the_last_answer_of_a_broker(rpc: str) -> None:
    assert gaps(rpc, FRESH) == ()
    assert "13 s old" in gaps(rpc, SILENT)[0].message
    assert gaps(rpc, NEVER)[0].message == "no broker has answered the master yet"


@pytest.mark.parametrize("rpc", ["block_size", "ping", "workers", "describe"])
def test_what_rests_on_no_broker_lacks_nothing_of_them(rpc: str) -> None:
    assert gaps(rpc, NEVER) == ()
