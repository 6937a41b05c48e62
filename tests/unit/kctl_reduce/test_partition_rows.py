from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from kctl.reduce.base import Answer, BrokerSnapshot
from kctl.rows.partitions import ResetPolicy
from kctl_agent.rpc.wire import JsonObject
from tests.partitions import Row, columns_of
from tests.replies import reduced_json

kafka_lag = partial(reduced_json, "kafka_lag")
offset_checker = partial(reduced_json, "offset_checker")


def row(partition: int, committed: int | None, end: int | None, **more: Any) -> dict[str, Any]:
    offsets = {"start": 0, "committed": committed, "position": committed, "end": end}
    return {"topic": "orders", "partition": partition, **offsets, "generation": 1, "age_seconds": 0.5, **more}


def answer(sender: str, *rows: dict[str, Any], age: float = 0.0) -> Answer[JsonObject]:
    return Answer(sender, {"rows": list(rows)}, age)


def brokers(*partitions: tuple[int, int | None, int | None], age: float = 1.0) -> BrokerSnapshot:
    rows = (Row("orders", number, 0, at, None, end, None, None, None, age) for number, at, end in partitions)
    return BrokerSnapshot(columns_of(*rows))


def test_a_lag_is_unknown_rather_than_zero_and_never_negative() -> None:
    assert offset_checker([], None) == {"rows": []}
    assert kafka_lag([], None) == {"total": None, "unknown": [], "topics": {}, "behind_transaction": None}
    assert kafka_lag([answer("worker-0", row(0, 101, 100))], None)["total"] == 0
    result = kafka_lag([answer("worker-0", row(0, None, None, position=None))], None)
    assert (result["total"], result["topics"]) == (None, {"orders": None})
    assert result["unknown"] == [{"topic": "orders", "partition": 0}]
    [row_without_reader] = offset_checker([], brokers((0, None, 25)))["rows"]
    assert (row_without_reader["worker"], row_without_reader["remaining_count"]) == (None, 25), "that of its log"


@pytest.mark.parametrize(
    ("loses", "wins"),
    [({"generation": 4, "age_seconds": 0.1}, {"generation": 5, "age_seconds": 0.9}), ({"age_seconds": 2.0}, {})],
    ids=["the higher generation", "in one generation the newer offsets"],
)
def test_of_two_claims_on_one_partition_one_wins(loses: dict[str, Any], wins: dict[str, Any]) -> None:
    claims = [answer("worker-0", row(0, 10, 100, **loses)), answer("worker-1", row(0, 30, 100, **wins))]

    [found] = offset_checker(claims, None)["rows"]

    assert (found["worker"], found["current_offset"]) == ("worker-1", 30)


@pytest.mark.parametrize(
    ("claim", "known", "expected"),
    [
        (row(0, 10, 100, age_seconds=30.0), brokers((0, 60, 150)), (60, 150, 90, 1.0)),
        (row(0, None, 100, position=None), brokers((0, 60, 90)), (60, 100, 40, 1.0)),
        (row(0, 10, 100, age_seconds=None), brokers((0, 60, 150), age=60.0), (60, 150, 90, 60.0)),
        (row(0, None, None, position=None, age_seconds=None), None, (None, None, None, 0.7)),
    ],
    ids=["both from the newer source", "what it does not know from the older", "no age is oldest", "never fetched"],
)
def test_offsets_come_from_the_newer_source(
    claim: dict[str, Any], known: BrokerSnapshot | None, expected: tuple[float | None, ...]
) -> None:
    [found] = offset_checker([answer("worker-0", claim, age=0.7 if known is None else 0.0)], known)["rows"]

    columns = ("current_offset", "kafka_max_offset", "remaining_count", "age_seconds")
    assert tuple(found[name] for name in columns) == expected
    assert found["worker"] == "worker-0"


@pytest.mark.shows("lag without a commit follows the reset policy in every view")
@pytest.mark.parametrize(
    ("reset", "start", "position", "lag"),
    [
        (ResetPolicy.EARLIEST, 20, None, 80),
        (ResetPolicy.EARLIEST, 20, 70, 80),
        (ResetPolicy.EARLIEST, None, 70, None),
        (ResetPolicy.LATEST, 20, 70, 30),
        (ResetPolicy.LATEST, 20, None, None),
        (ResetPolicy.NONE, 20, 70, None),
    ],
)
def test_the_policy_decides_lag(reset: ResetPolicy, start: int | None, position: int | None, lag: int | None) -> None:
    claim = answer("worker-0", row(0, None, 100, start=start, position=position))
    known = Row("orders", 0, start, None, None, 100, None, None, None, 1.0)

    for brokers in (BrokerSnapshot(reset=reset), BrokerSnapshot(columns_of(known), reset=reset)):
        checked = offset_checker([claim], brokers)["rows"][0]
        assert (checked["current_offset"], checked["remaining_count"]) == (None, lag)
        assert kafka_lag([claim], brokers)["total"] == lag


REPORT = answer("report", row(0, 20, 110, generation=None), row(1, 7, None, generation=None))


def test_an_attached_application_has_rows_of_its_own_beside_the_groups_of_what_the_group_reads_too() -> None:
    answers = [answer("worker-0", row(0, 40, 100)), REPORT]

    rows = offset_checker(answers, brokers((0, 40, 100), (1, 5, 25), (2, None, 9)))["rows"]

    columns = ("partition", "current_offset", "kafka_max_offset", "remaining_count", "worker")
    assert [tuple(each[name] for name in columns) for each in rows] == [
        (0, 40, 100, 60, "worker-0"),
        (1, 5, 25, 20, None),
        (2, None, 9, 9, None),
        (0, 20, 110, 90, "report"),
        (1, 7, 25, 18, "report"),
    ]
    assert kafka_lag(answers, None)["total"] == 60, "the application is a group of its own"


def test_an_attached_application_is_the_reader_of_unread_partitions_of_the_fleets_topics_only() -> None:
    known = brokers((0, None, 100))

    rows = offset_checker([REPORT], known)["rows"]

    assert [(each["partition"], each["current_offset"], each["worker"]) for each in rows] == [
        (0, 20, "report"),
        (1, 7, "report"),
    ]
    assert kafka_lag([REPORT], known)["total"] == 110 - 20, "what the fleet does not read is not in its lag"
