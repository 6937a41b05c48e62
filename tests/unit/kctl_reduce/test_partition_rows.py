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
    return {
        "topic": "orders",
        "partition": partition,
        "start": 0,
        "committed": committed,
        "position": committed,
        "end": end,
        "generation": 1,
        "age_seconds": 0.5,
        **more,
    }


def answer(sender: str, *rows: dict[str, Any], age: float = 0.0) -> Answer[JsonObject]:
    return Answer(sender, {"rows": list(rows)}, age)


def brokers(*partitions: tuple[int, int | None, int | None], age: float = 1.0) -> BrokerSnapshot:
    return BrokerSnapshot(
        columns_of(
            *(
                Row("orders", number, 0, committed, None, end, None, None, None, age)
                for number, committed, end in partitions
            )
        )
    )


def test_a_partition_that_no_worker_answers_for_keeps_its_row_from_the_brokers() -> None:
    result = offset_checker([answer("worker-0", row(0, 40, 100))], brokers((0, 40, 100), (1, 5, 25)))

    assert result["rows"][1] == {
        "topic": "orders",
        "partition": 1,
        "current_offset": 5,
        "kafka_max_offset": 25,
        "remaining_count": 20,
        "worker": None,
        "age_seconds": 1.0,
        "stored_messages": None,
        "stored_seconds": None,
    }


def test_without_workers_and_without_brokers_there_are_no_rows_and_the_total_is_unknown() -> None:
    assert offset_checker([], None) == {"rows": []}
    assert kafka_lag([], None) == {"total": None, "unknown": [], "topics": {}, "behind_transaction": None}


def test_of_two_claims_on_one_partition_the_higher_generation_wins_even_with_older_offsets() -> None:
    old = answer("worker-0", row(0, 10, 100, generation=4, age_seconds=0.1))
    new = answer("worker-1", row(0, 30, 100, generation=5, age_seconds=0.9))

    assert offset_checker([old, new], None)["rows"][0]["worker"] == "worker-1"
    assert offset_checker([old, new], None)["rows"][0]["current_offset"] == 30


def test_of_two_claims_in_one_generation_the_newer_offsets_win() -> None:
    older = answer("worker-0", row(0, 10, 100, age_seconds=2.0))
    newer = answer("worker-1", row(0, 30, 100, age_seconds=0.2))

    assert offset_checker([older, newer], None)["rows"][0]["worker"] == "worker-1"


def test_committed_and_end_come_from_one_source_the_newer_one() -> None:
    worker = answer("worker-0", row(0, 10, 100, age_seconds=30.0, stored_messages=7, stored_seconds=3.0))

    result = offset_checker([worker], brokers((0, 60, 150), age=1.0))

    assert result["rows"][0] == {
        "topic": "orders",
        "partition": 0,
        "current_offset": 60,
        "kafka_max_offset": 150,
        "remaining_count": 90,
        "worker": "worker-0",
        "age_seconds": 1.0,
        "stored_messages": 7,
        "stored_seconds": 3.0,
    }


def test_what_the_newer_source_does_not_know_the_older_one_fills_in() -> None:
    worker = answer("worker-0", row(0, None, 100, position=None, age_seconds=0.1))

    result = offset_checker([worker], brokers((0, 60, 90), age=5.0))

    assert result["rows"][0]["current_offset"] == 60
    assert result["rows"][0]["kafka_max_offset"] == 100


def test_offsets_without_an_age_are_older_than_any_with_one() -> None:
    worker = answer("worker-0", row(0, 10, 100, age_seconds=None))

    result = offset_checker([worker], brokers((0, 60, 150), age=60.0))

    assert result["rows"][0]["current_offset"] == 60


def test_offsets_that_were_never_fetched_are_as_old_as_the_answer() -> None:
    worker = answer("worker-0", row(0, None, None, position=None, age_seconds=None), age=0.7)

    assert offset_checker([worker], None)["rows"][0]["age_seconds"] == 0.7


def test_lag_is_never_negative() -> None:
    result = kafka_lag([answer("worker-0", row(0, 101, 100))], None)

    assert result["total"] == 0


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


def test_what_is_committed_is_what_lag_is_counted_from_under_every_policy() -> None:
    for reset in ResetPolicy:
        checked = offset_checker([answer("worker-0", row(0, 90, 100, position=95))], BrokerSnapshot(reset=reset))
        assert checked["rows"][0]["remaining_count"] == 10


def test_a_partition_without_commit_and_reader_has_the_lag_of_its_log() -> None:
    rows = offset_checker([], brokers((0, None, 25)))["rows"]

    assert [(each["worker"], each["remaining_count"]) for each in rows] == [(None, 25)]


def test_a_topic_of_which_nothing_is_known_has_no_lag_rather_than_zero() -> None:
    result = kafka_lag([answer("worker-0", row(0, None, None, position=None))], None)

    assert (result["total"], result["topics"]) == (None, {"orders": None})
    assert result["unknown"] == [{"topic": "orders", "partition": 0}]


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
